from __future__ import annotations

import pytest

from gpudoc.doctor.model import Card, Setting
from gpudoc.doctor.xid_advice import advise_for, advise_recovery
from gpudoc.knowledge.xids import all_sxids, all_xids, find_sxid, find_xid

ONE = Setting(cards=(Card(index=3),), num_gpus=8)


def text(advise) -> str:
    return " ".join(f"{step.say} {step.run}" for step in advise(ONE))


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (46, "--gpu-reset -i 3"),
        (109, "--gpu-reset -i 3"),
        (39, "Start the program again"),
        (11, "compute-sanitizer"),
        (54, "ends every program on it, and seat the card"),
        (78, "Update driver and firmware"),
        (151, "Restart the virtual machine"),
        (5, "nvidia-bug-report.sh"),
        (169, "names no action"),
        (63, "asks for nothing"),
    ],
)
def test_a_number_s_steps_are_those_that_nvidia_names(code, says):
    assert says.lower() in text(advise_for(find_xid(code), "error")).lower()


def test_a_switch_s_fatal_error_resets_the_whole_fabric_or_the_machine():
    for code in (20034, 10003):
        assert "nvidia-smi --gpu-reset &&" in text(advise_for(find_sxid(code), "fatal"))
    assert "sudo reboot" in text(advise_for(find_sxid(23001), "fatal"))
    assert "--gpu-reset" in text(advise_for(None, "fatal"))
    assert "names no action" in text(advise_for(None, "warning"))


def test_every_action_of_the_table_has_steps():
    for row in (*all_xids(), *all_sxids()):
        assert advise_for(row, row.severity)(ONE), row


def test_a_recovery_s_name_decides():
    assert "sudo reboot" in text(advise_recovery("Node Reboot Required"))
    assert "sudo reboot" not in text(advise_recovery("GPU Reset Required"))
