from __future__ import annotations

import itertools

import pytest

from gpudoc.doctor.disruption import power_off, reboot, reload_modules, reset, reset_fabric, users
from gpudoc.doctor.model import Card, Remedy, Setting
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.doctor.xid_advice import CONTAINED, advise_for, advise_recovery, got_over
from gpudoc.facts.model import Gpu, GpuProcess
from gpudoc.knowledge.xids import all_sxids, all_xids
from tests.doctor.commands import check

CAPABILITIES = ((6, 1), (7, 0), (7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0), None)


def gpu(index: int, capability=(9, 0), **changes) -> Gpu:
    limits = {"power_limit_default_w": 400.0, "power_limit_min_w": 350.0, "power_limit_max_w": 450.0}
    return Gpu(index=index, capability=capability, **{**limits, **changes})


def groups(capability):
    """None, the first, the second of eight, one known by its address only, and two."""
    known = capability or (9, 0)
    return {
        "none": (),
        "index 0": (Card(index=0, facts=gpu(0, known)),),
        "index 1": (Card(index=1, facts=gpu(1, known)),),
        "address only": (Card(pci_address="0000:3b:00.0"),),
        "two": (Card(index=1, facts=gpu(1, known)), Card(index=3, facts=gpu(3, known))),
    }


def settings():
    for capability, count, module in itertools.product(CAPABILITIES, (None, 1, 2, 8), (None, True, False)):
        for cards in groups(capability).values():
            if count is not None and any(isinstance(c.index, int) and c.index >= count for c in cards):
                continue
            yield Setting(capability=capability, num_gpus=count, open_module=module, cards=cards, ill=cards)


@pytest.mark.parametrize("cause_id", CATALOGUE)
def test_no_cause_prints_a_command_for_a_card_that_its_evidence_does_not_name(cause_id):
    for number, setting in enumerate(settings()):
        # the place changes few words: every seventh setting shows them
        for place in ("host", "docker", "slurm", "kubernetes", "wsl") if number % 7 == 0 else ("host",):
            there = Setting(
                place=place, capability=setting.capability, num_gpus=setting.num_gpus, cards=setting.cards,
                ill=setting.ill, open_module=setting.open_module,
            )  # fmt: skip
            check(CATALOGUE[cause_id].fix(there), there, cause_id)


def test_no_number_of_the_kernel_log_prints_one_either():
    advices = [(row.code, advise_for(row, row.severity)) for row in (*all_xids(), *all_sxids())]
    advices += [(0, advise_for(None, level)) for level in ("fatal", "warning")]
    advices += [(94, CONTAINED), (145, got_over)]
    names = ("GPU Reset Required", "Node Reboot Required", "Drain P2P", "Drain and Reset", "Recover IMEX Domain")
    advices += [(154, advise_recovery(name)) for name in names]
    for setting in settings():
        for code, advise in advices:
            check(advise(setting), setting, str(code))


def runs(steps: tuple[Remedy, ...]) -> list[str]:
    return [step.run for step in steps]


def test_a_reset_names_its_cards_and_looks_first_who_uses_them():
    steps = reset(Setting(cards=(Card(index=1), Card(index=3))))
    assert runs(steps)[-1] == "sudo nvidia-smi --gpu-reset -i 1,3"
    assert "-i 1,3 --query-compute-apps" in steps[0].run
    assert "ends every program" in steps[-1].say


def test_without_a_card_there_is_no_reset_to_paste():
    assert not any("--gpu-reset" in run for run in runs(reset(Setting())))
    assert runs(reset(Setting()))[0].startswith("nvidia-smi -L")


def test_older_gpus_that_nvlink_joins_are_reset_together():
    volta = gpu(1, (7, 0), nvlink_active=6)
    assert runs(reset(Setting(cards=(Card.of(volta),))))[-1] == "sudo nvidia-smi --gpu-reset"
    ampere = gpu(1, (8, 0), nvlink_active=12)
    assert runs(reset(Setting(cards=(Card.of(ampere),))))[-1] == "sudo nvidia-smi --gpu-reset -i 1"
    alone = gpu(1, (7, 0), nvlink_active=0)
    assert runs(reset(Setting(cards=(Card.of(alone),))))[-1] == "sudo nvidia-smi --gpu-reset -i 1"


def test_the_whole_fabric_is_reset_without_naming_a_card():
    (run,) = [step.run for step in reset_fabric(Setting(cards=(Card(index=1),))) if step.disruptive]
    assert run.split(" && ") == [
        "sudo systemctl stop nvidia-fabricmanager",
        "sudo nvidia-smi --gpu-reset",
        "sudo systemctl start nvidia-fabricmanager",
    ]


def test_the_programs_on_the_card_are_named_where_the_machine_told():
    python = GpuProcess(pid=4242, name="python")
    setting = Setting(cards=(Card(index=1),), holders={0: (GpuProcess(pid=7, name="vllm"),), 1: (python,)})
    assert "End or move python (4242) on GPU 1 first" in users(setting).say
    assert "vllm" not in users(setting).say
    assert "vllm (7), python (4242)" in users(setting, everywhere=True).say
    assert "no process is listed on GPU 1 now" in users(Setting(cards=(Card(index=1),), holders={1: ()})).say
    assert users(Setting(cards=(Card(index=1),), holders={0: ()})).say.startswith("See which programs use GPU 1,")
    assert users(Setting()).say.startswith("See which programs use the GPU,")


@pytest.mark.parametrize(
    ("place", "command"),
    [("slurm", "scontrol update"), ("kubernetes", "kubectl cordon"), ("host", None)],
)
def test_a_scheduler_sends_no_new_work_before_the_reset(place, command):
    steps = runs(reset(Setting(place=place, cards=(Card(index=0),))))
    drained = [run for run in steps if "scontrol" in run or "cordon" in run]
    assert len(drained) == (command is not None)
    assert all(run.startswith(("sudo " + (command or ""), command or "")) for run in drained)
    assert steps.index(drained[0]) < len(steps) - 1 if drained else True


def test_inside_a_container_it_is_the_host_s_task():
    docker = Setting(place="docker", cards=(Card(index=1),))
    assert reboot(docker, "if the reset is refused")[-1].say.startswith("Reboot the host if the reset is refused;")
    assert reset(docker, "when its jobs have ended")[-1].say.startswith(
        "Reset GPU 1 on the host when its jobs have ended,"
    )
    assert power_off(docker, "reseat the card")[-1].say.startswith("Switch the host off, ")
    assert power_off(docker, "reseat the card")[-1].say.endswith(", and reseat the card.")
    assert reload_modules(docker, "the modules", "true", "instead of rebooting")[-1].say.startswith(
        "Reload the modules on the host instead of rebooting;"
    )


def test_where_windows_has_the_driver_no_linux_command_is_given():
    for place in ("windows", "wsl"):
        steps = reset(Setting(place=place, cards=(Card(index=1),)))
        assert not any("sudo" in run for run in runs(steps))
        assert steps[-1].say.startswith("Reset GPU 1 in Windows,")
        assert reboot(Setting(place=place))[-1].say.startswith("Reboot the machine in Windows;")
        assert steps[-1].disruptive
