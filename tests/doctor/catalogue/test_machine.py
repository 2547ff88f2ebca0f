from __future__ import annotations

import pytest

from gpudoc.doctor.catalogue import machine
from gpudoc.doctor.model import Card, Setting
from gpudoc.facts.model import Gpu
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


def test_a_reboot_that_the_driver_asks_for_is_not_replaced_by_a_reset():
    (cause,) = [cause for cause in machine.CAUSES if cause.id == "gpu_needs_reset"]
    for action, run in (
        (1, "sudo nvidia-smi --gpu-reset -i 3"),
        (2, "sudo reboot"),
        (4, "sudo nvidia-smi --gpu-reset -i 3"),
    ):
        steps = cause.fix(Setting(cards=(Card.of(Gpu(index=3, recovery_action=action)),)))
        assert next(step.run for step in steps if step.disruptive) == run


def test_the_recovery_that_the_driver_names_is_the_advice_and_a_reboot_comes_before_all():
    (cause,) = [cause for cause in machine.CAUSES if cause.id == "gpu_needs_reset"]

    def text(*actions):
        cards = tuple(Card.of(Gpu(index=index, recovery_action=action)) for index, action in enumerate(actions))
        return " ".join(f"{step.say} {step.run}" for step in cause.fix(Setting(cards=cards)))

    assert "copy between GPUs" in text(3)
    assert "nvidia-fabricmanager" in text(5)
    assert "--gpu-reset" not in text(1, 2)
    assert "--gpu-reset -i 0,1" in text(1, 4)
