from __future__ import annotations

from gpudoc.doctor.catalogue import machine
from gpudoc.doctor.model import Setting


def test_every_row_is_whole():
    for cause in machine.CAUSES:
        assert cause.title
        assert cause.meaning
        assert cause.why.endswith(".")
        assert all(source.startswith("https://") for source in cause.sources), cause.id
        assert cause.sources


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
