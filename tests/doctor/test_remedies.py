from __future__ import annotations

import functools
import itertools

import pytest

from gpudoc.doctor.examine import examine_text
from gpudoc.doctor.model import Card, Remedy, Setting
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.doctor.remedies import advise, advise_recovery, do, users
from gpudoc.doctor.xid_advice import CONTAINED, advise_for, got_over
from gpudoc.facts.model import Gpu, GpuProcess
from gpudoc.knowledge.xids import all_sxids, all_xids
from tests.doctor.commands import check

CAPABILITIES = ((6, 1), (7, 0), (7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0), None)


def runs(steps: tuple[Remedy, ...]) -> list[str]:
    return [step.run for step in steps]


def joined(steps: tuple[Remedy, ...]) -> str:
    return " ; ".join(runs(steps))


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


@functools.cache
def settings():
    """Every setting that the tests below try, made once for all causes."""
    return tuple(made_settings())


def made_settings():
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
        for code, steps in advices:
            check(steps(setting), setting, str(code))


def test_a_reset_names_its_cards_and_looks_first_who_uses_them():
    steps = advise("reset")(Setting(cards=(Card(index=1), Card(index=3))))
    assert runs(steps)[-1] == "sudo nvidia-smi --gpu-reset -i 1,3"
    assert "-i 1,3 --query-compute-apps" in steps[0].run
    assert "ends every program" in steps[-1].say


def test_without_a_card_there_is_no_reset_to_paste():
    assert not any("--gpu-reset" in run for run in runs(advise("reset")(Setting())))
    assert runs(advise("reset")(Setting()))[0].startswith("nvidia-smi -L")


def test_older_gpus_that_nvlink_joins_are_reset_together():
    volta = gpu(1, (7, 0), nvlink_active=6)
    assert runs(advise("reset")(Setting(cards=(Card.of(volta),))))[-1] == "sudo nvidia-smi --gpu-reset"
    ampere = gpu(1, (8, 0), nvlink_active=12)
    assert runs(advise("reset")(Setting(cards=(Card.of(ampere),))))[-1] == "sudo nvidia-smi --gpu-reset -i 1"
    alone = gpu(1, (7, 0), nvlink_active=0)
    assert runs(advise("reset")(Setting(cards=(Card.of(alone),))))[-1] == "sudo nvidia-smi --gpu-reset -i 1"


def test_the_whole_fabric_is_reset_without_naming_a_card():
    (run,) = [step.run for step in advise("reset_fabric")(Setting(cards=(Card(index=1),))) if step.disruptive]
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
    steps = runs(advise("reset")(Setting(place=place, cards=(Card(index=0),))))
    drained = [run for run in steps if "scontrol" in run or "cordon" in run]
    assert len(drained) == (command is not None)
    assert all(run.startswith(("sudo " + (command or ""), command or "")) for run in drained)
    assert steps.index(drained[0]) < len(steps) - 1 if drained else True


def test_inside_a_container_it_is_the_host_s_task():
    docker = Setting(place="docker", cards=(Card(index=1),))
    assert advise("reboot", when="if the reset is refused")(docker)[-1].say.startswith(
        "Reboot the host if the reset is refused;"
    )
    assert advise("reset", when="when its jobs have ended")(docker)[-1].say.startswith(
        "Reset GPU 1 on the host when its jobs have ended,"
    )
    assert advise("power_off", why="reseat the card")(docker)[-1].say.startswith("Switch the host off, ")
    assert advise("power_off", why="reseat the card")(docker)[-1].say.endswith(", and reseat the card.")
    reload = advise("reload_modules", what="the modules", run="true", when="instead of rebooting")
    assert reload(docker)[-1].say.startswith("Reload the modules on the host instead of rebooting;")


def test_where_windows_has_the_driver_no_linux_command_is_given():
    for place in ("windows", "wsl"):
        steps = advise("reset")(Setting(place=place, cards=(Card(index=1),)))
        assert not any("sudo" in run for run in runs(steps))
        assert steps[-1].say.startswith("Reset GPU 1 in Windows,")
        assert advise("reboot")(Setting(place=place))[-1].say.startswith("Reboot the machine in Windows;")
        assert steps[-1].disruptive


@pytest.mark.parametrize(
    ("capability", "named", "left_out"),
    [
        ((12, 0), "nvidia-open", "cuda-drivers"),
        ((8, 0), "nvidia-open", "cuda-drivers"),
        ((6, 1), "cuda-drivers", "nvidia-open"),
    ],
)
def test_the_kind_of_module_is_the_one_that_the_gpu_needs(capability, named, left_out):
    cause = CATALOGUE["kernel_module_kind_wrong"]
    runs = " ".join(step.run for step in cause.fix(Setting(capability=capability)))
    assert named in runs
    assert left_out not in runs
    both = " ".join(step.run for step in cause.fix(Setting()))
    assert "nvidia-open" in both
    assert "cuda-drivers" in both


def test_a_reboot_that_the_driver_asks_for_is_not_replaced_by_a_reset():
    cause = CATALOGUE["gpu_needs_reset"]
    for action, run in (
        (1, "sudo nvidia-smi --gpu-reset -i 3"),
        (2, "sudo reboot"),
        (4, "sudo nvidia-smi --gpu-reset -i 3"),
    ):
        steps = cause.fix(Setting(cards=(Card.of(Gpu(index=3, recovery_action=action)),)))
        assert next(step.run for step in steps if step.disruptive) == run


def test_the_recovery_that_the_driver_names_is_the_advice_and_a_reboot_comes_before_all():
    cause = CATALOGUE["gpu_needs_reset"]

    def text(*actions):
        cards = tuple(Card.of(Gpu(index=index, recovery_action=action)) for index, action in enumerate(actions))
        return " ".join(f"{step.say} {step.run}" for step in cause.fix(Setting(cards=cards)))

    assert "copy between GPUs" in text(3)
    assert "nvidia-fabricmanager" in text(5)
    assert "--gpu-reset" not in text(1, 2)
    assert "--gpu-reset -i 0,1" in text(1, 4)


@pytest.mark.parametrize(
    ("capability", "module", "switched_off"),
    [
        ((8, 0), False, True),
        ((8, 0), True, False),
        ((8, 0), None, False),
        (None, False, False),
        ((10, 0), False, False),
        ((12, 0), None, False),
    ],
)
def test_gsp_is_switched_off_only_where_the_gpu_can_do_without(capability, module, switched_off):
    steps = CATALOGUE["gsp_firmware_timeout"].fix(Setting(capability=capability, open_module=module))
    assert ("EnableGpuFirmware=0" in " ".join(step.run for step in steps)) is switched_off


def test_a_gpu_is_asked_whether_it_is_drained_only_by_an_address_that_is_known():
    fix = CATALOGUE["gpu_missing_from_driver"].fix
    known = fix(Setting(cards=(Card(pci_address="0000:3b:00.0"),)))
    assert "nvidia-smi drain -p 0000:3b:00.0 -q" in [step.run for step in known]
    assert not any("drain -p" in step.run for step in fix(Setting(cards=(Card(index=1),))))


def test_root_is_needed_where_the_command_says_so():
    assert not do("a", "nvidia-smi").needs_root
    assert do("b", "nvidia-smi; sudo dmesg").needs_root


def test_a_wheel_is_offered_that_both_the_driver_and_the_gpu_run():
    old_driver = joined(advise("driver_update")(Setting(driver_cuda=(11, 4), capability=(7, 5))))
    assert "torch==2.7.1" in old_driver
    assert "/whl/cu118" in old_driver
    assert "cu12" not in old_driver
    volta = joined(advise("torch_build")(Setting(driver_cuda=(13, 0), capability=(7, 0))))
    assert "/whl/cu126" in volta
    blackwell = joined(advise("torch_build")(Setting(driver_cuda=(13, 0), capability=(12, 0))))
    assert "/whl/cu13" in blackwell


@pytest.mark.parametrize(
    "said",
    [
        "RuntimeError: HIP error: invalid device function",
        "hipErrorNoBinaryForGpu: Unable to find code object for all current devices!",
        "torch 2.9.0+rocm6.4, AMD Radeon RX 6600 (gfx1032): no kernel image is available for execution on the device",
    ],
)
def test_a_card_of_amd_never_gets_a_build_for_cuda(said):
    first = examine_text([("error.txt", said.encode())]).findings[0]
    assert first.id in ("gpu_newer_than_wheel_archs", "gpu_older_than_wheel_archs")
    commands = joined(first.fix)
    assert "rocminfo" in commands
    assert "/whl/rocm" in commands
    assert "/whl/cu" not in commands


def test_where_no_wheel_fits_none_is_offered():
    (only,) = advise("torch_build")(Setting(driver_cuda=(11, 4), capability=(12, 0)))
    assert only.say.startswith("Update the driver first:")
    assert not only.run
    assert "pip install" not in joined(advise("driver_update")(Setting(driver_cuda=(11, 4), capability=(12, 0))))


def test_a_driver_is_updated_where_it_lives():
    assert "host" in advise("driver_update")(Setting(place="docker"))[0].say
    assert "Windows" in advise("driver_update")(Setting(place="wsl"))[0].say
    assert "administrator" in advise("driver_update")(Setting(place="slurm", driver_cuda=(12, 2)))[-1].say


H100 = {"power_limit_default_w": 700.0, "power_limit_min_w": 200.0, "power_limit_max_w": 700.0}
T4 = {"power_limit_default_w": 70.0, "power_limit_min_w": 60.0, "power_limit_max_w": 70.0}


def card(index: int, **limits: float) -> Card:
    return Card.of(Gpu(index=index, **limits))


def test_a_power_limit_is_the_card_s_own_within_its_range():
    both = Setting(cards=(card(0, **T4), card(2, **H100)))
    (step,) = advise("power_limits", say="Lower it", share="0.8")(both)
    assert step.run.splitlines() == ["sudo nvidia-smi -i 0 -pl 60", "sudo nvidia-smi -i 2 -pl 560"]
    (back,) = advise("power_limits", say="Restore it", share="1.0")(both)
    assert back.run.splitlines() == ["sudo nvidia-smi -i 0 -pl 70", "sudo nvidia-smi -i 2 -pl 700"]


@pytest.mark.parametrize("cards", [(), (card(0),), (card(0, **T4), card(1)), (Card(pci_address="0000:3b:00.0"),)])
def test_without_a_range_there_is_no_figure(cards):
    (step,) = advise("power_limits", say="Lower it", share="0.8")(Setting(cards=cards))
    assert "-pl" not in step.run
    assert step.say.startswith("Lower it: ")
    assert "Min and Max Power Limit" in step.say


elsewhere = advise("another_card", say="Try it elsewhere")


def test_another_card_is_one_that_is_not_ill():
    two_left = elsewhere(Setting(cards=(card(1),), num_gpus=3))
    assert joined(two_left).endswith("CUDA_VISIBLE_DEVICES=0,2 python train.py")
    assert "no other" in elsewhere(Setting(cards=(card(0),), num_gpus=1))[0].say
    assert joined(elsewhere(Setting())) == "nvidia-smi -L"
