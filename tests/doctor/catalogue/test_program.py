from __future__ import annotations

import pytest

from gpudoc.doctor.catalogue import program
from gpudoc.doctor.model import Setting

PLACES = ("host", "docker", "kubernetes", "slurm", "notebook", "colab", "wsl", "windows", "macos", "jetson")


@pytest.mark.parametrize("cause", program.CAUSES, ids=lambda c: c.id)
def test_a_row_tells_meaning_reason_remedy_and_source_in_every_place(cause):
    assert len(cause.title) <= 100
    assert len(cause.meaning) > 15
    for place in PLACES:
        for packager in ("pip", "uv", "conda", "poetry"):
            steps = cause.fix(Setting(place=place, packager=packager))
            assert steps, (cause.id, place)
            for step in steps:
                assert step.say.strip(), cause.id
                assert step.needs_root == ("sudo " in step.run) or not step.run.startswith("sudo"), (cause.id, step.run)
