from __future__ import annotations

import json

import pytest

from gpudoc.doctor.registry import CATALOGUE
from gpudoc.errors import GpudocError
from gpudoc.render.catalogue import show_catalogue


def test_the_list_holds_every_cause_and_explain_one(capsys):
    assert show_catalogue(None) == 0
    listed = capsys.readouterr().out
    assert all(cause_id in listed for cause_id in CATALOGUE)
    assert show_catalogue("nouveau_loaded") == 0
    shown = capsys.readouterr().out
    assert "blacklist nouveau" in shown
    assert "source: https://" in shown


def test_the_catalogue_as_json_and_a_misspelt_id(capsys):
    show_catalogue(None, as_json=True)
    plain = json.loads(capsys.readouterr().out)
    assert len(plain["causes"]) == len(CATALOGUE)
    with pytest.raises(GpudocError) as refused:
        show_catalogue("nouveau_loadet")
    assert refused.value.hint == "did you mean nouveau_loaded?"
    with pytest.raises(GpudocError) as refused:
        show_catalogue("oom")
    assert refused.value.hint.startswith("one of ")
    assert "oom_capacity" in refused.value.hint
    with pytest.raises(GpudocError) as refused:
        show_catalogue("gremlins")
    assert refused.value.hint == "gpudoc doctor --list"


def test_a_step_that_ends_work_is_marked(capsys):
    show_catalogue("driver_in_bad_state")
    assert "fix: disruptive: Reload" in capsys.readouterr().out
