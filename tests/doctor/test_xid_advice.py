from __future__ import annotations

import pytest

from gpudoc.doctor.model import Card, Setting
from gpudoc.doctor.xid_advice import CONTAINED, advise_for, advise_recovery, got_over
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


def test_a_question_to_nvidia_smi_names_the_cards_that_are_known():
    address = Setting(cards=(Card(pci_address="0000:3b:00.0"),))
    runs = [CONTAINED(setting)[0].run for setting in (ONE, address, Setting())]
    assert runs == [f"nvidia-smi{which} -q -d ECC,ROW_REMAPPER" for which in (" -i 3", " -i 0000:3b:00.0", "")]
    assert got_over(ONE)[1].run == "nvidia-smi nvlink --errorcounters -i 3"


def test_what_is_contained_is_reset_once_its_jobs_have_ended():
    assert CONTAINED(ONE)[-1].say.startswith("Reset GPU 3 when its jobs have ended,")
    assert CONTAINED(ONE)[-1].disruptive


def test_a_restart_of_the_virtual_machine_is_marked_and_stands_behind_a_look_at_who_uses_it():
    look, restart, *_ = advise_for(find_xid(151), "fatal")(ONE)
    assert "--query-compute-apps" in look.run
    assert restart.disruptive
    assert not look.disruptive
