from __future__ import annotations

import pytest

from gpudoc.doctor.catalogue import machine
from gpudoc.doctor.model import Setting
from tests.doctor.catalogue.rows import check_row


@pytest.mark.parametrize("cause", machine.CAUSES, ids=lambda c: c.id)
def test_a_row_tells_meaning_reason_remedy_and_source_in_every_place(cause):
    check_row(cause)


def test_every_remedy_says_what_to_do_in_each_setting():
    for cause in machine.CAUSES:
        for setting in (Setting(), Setting(packager="uv", place="docker", torch_version="2.6.0+cu124")):
            steps = cause.fix(setting)
            assert steps
            assert all(step.say.endswith(".") for step in steps), cause.id
            assert any(step.needs_root for step in steps if step.run.startswith("sudo")) or not any(
                step.run.startswith("sudo") for step in steps
            )


def test_commands_fit_the_packager():
    (cause,) = [cause for cause in machine.CAUSES if cause.id == "cuda_library_version_differs"]
    (step,) = cause.fix(Setting(packager="uv", torch_version="2.6.0+cu124"))
    assert step.run.startswith("uv pip install --force-reinstall torch==2.6.0")
