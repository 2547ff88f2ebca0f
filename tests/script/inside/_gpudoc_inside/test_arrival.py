"""An action runs when its module has been imported, whoever imports it, and at once when it was there already."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

from gpudoc.script.inside._gpudoc_inside.arrival import Arrivals, wait_for


@pytest.fixture(autouse=True)
def _finders(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "arriving.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "arriving"
    sys.modules.pop("arriving", None)


def test_a_module_is_whole_when_its_action_runs(module):
    seen = []
    wait_for({module: lambda found: seen.append(found.value)})
    assert seen == []
    found = importlib.import_module(module)
    assert seen == [1]
    assert "exec_module" not in vars(found.__spec__.loader)


def test_a_module_that_is_there_already_is_not_waited_for():
    seen = []
    wait_for({"json": seen.append})
    assert seen == [json]


def test_an_action_runs_once(module):
    seen = []
    wait_for({module: seen.append})
    importlib.reload(importlib.import_module(module))
    assert len(seen) == 1


def test_a_module_that_cannot_be_imported_runs_no_action(tmp_path, monkeypatch):
    (tmp_path / "broken_one.py").write_text("raise RuntimeError('mine')\n")
    monkeypatch.syspath_prepend(tmp_path)
    wait_for({"broken_one": pytest.fail, "not_there_at_all": pytest.fail})
    with pytest.raises(RuntimeError, match="mine"):
        importlib.import_module("broken_one")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("not_there_at_all")


def test_only_what_is_waited_for_is_found():
    assert Arrivals({}).find_spec("json") is None
