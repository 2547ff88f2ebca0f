from dataclasses import replace

import pytest

from gpudoc.bench import evidence
from gpudoc.facts.model import Absent, Container
from tests.bench.builders import H100, machine, row, situation, with_link

FULL = {"link_generation_max": 5.0, "link_width_max": 16.0, "sm_clock_mhz": 1900.0, "gpu_processes_max": 1.0}


def seen(**context):
    return row(context={**FULL, **context})


@pytest.mark.parametrize(
    ("context", "title"),
    [
        ({"link_width_max": 8.0}, "Gen5 x8 instead of Gen5 x16"),
        ({"link_generation_max": 3.0}, "Gen3 x16 instead of Gen5 x16"),
    ],
)
def test_a_link_below_its_best_under_load(context, title):
    found = evidence.link_degraded(seen(**context), situation([]))
    assert found.id == "pcie_link_degraded"
    assert title in found.title


def test_a_full_link_a_hidden_link_and_one_that_was_not_watched_are_no_cause():
    assert evidence.link_degraded(seen(), situation([])) is None
    assert evidence.link_degraded(row(), situation([])) is None
    hidden = machine(with_link(width_max=Absent("virtual")))
    assert evidence.link_degraded(seen(link_width_max=8.0), situation([], hidden)) is None


def test_copies_from_another_node():
    two = replace(machine(), host=replace(machine().host, numa_nodes=2))
    assert evidence.wrong_node(seen(), situation([], two)).id == "process_far_from_gpu"
    assert evidence.wrong_node(seen(), situation([], two, near_cpus=16)) is None
    assert evidence.wrong_node(seen(), situation([])) is None
    hidden = replace(two, gpus=(replace(H100, numa_node=-1),))
    assert "BIOS" in evidence.wrong_node(seen(), situation([], hidden, near_cpus=16)).title


def soaked(value, **context):
    """A soak that began at 100 TFLOP/s with 1740 MHz and 61 °C."""
    parameters = {"dtype": "bf16", "shape": "1x1x1", "seconds": 60.0}
    began = {"sm_clock_mhz": 1740.0, "temperature_c_max": 61.0}
    return situation(
        [
            row("soak_start", value=100.0, unit="TFLOP/s", parameters=parameters, context=began),
            row("soak_end", value=value, unit="TFLOP/s", parameters=parameters, context=context),
        ]
    )


def test_a_soak_names_heat_with_the_curve_from_its_begin_to_its_end():
    hot = soaked(60.0, throttled_sw_thermal_share=0.8, sm_clock_mhz=1050.0, temperature_c_max=88.0)
    found = evidence.slowed_by_soaking(hot)
    assert found.id == "thermal_throttle"
    assert found.evidence[0].value == (
        "100 TFLOP/s (1740 MHz, 61 °C) at first, 60 TFLOP/s (1050 MHz, 88 °C) at the end of 60 s"
    )


def test_a_soak_tells_the_power_limit_from_heat_and_says_when_nothing_explains_it():
    capped = evidence.slowed_by_soaking(soaked(90.0, throttled_sw_power_cap_share=0.9))
    assert (capped.id, capped.severity) == ("power_limit_reached", "info")
    assert evidence.slowed_by_soaking(soaked(90.0)).id == "cause_not_found"
    assert evidence.slowed_by_soaking(soaked(97.0, throttled_sw_power_cap_share=0.9)) is None
    assert evidence.slowed_by_soaking(situation([])) is None


def test_heat_power_and_hand_set_clocks_are_told_apart():
    hot = seen(throttled_hw_thermal_share=0.7, temperature_c_max=91.0, sm_clock_mhz=1200.0)
    capped = seen(throttled_sw_power_cap_share=0.9, sm_clock_mhz=1400.0)
    fixed = seen(sm_clock_mhz=1200.0)
    found = {
        name: tuple(cause.id for one in evidence.LOAD_CAUSES if (cause := one(measured, situation([]))) is not None)
        for name, measured in {"hot": hot, "capped": capped, "fixed": fixed, "fine": seen()}.items()
    }
    assert found == {
        "hot": ("thermal_throttle",),
        "capped": ("power_limit_reached",),
        "fixed": ("clocks_limited",),
        "fine": (),
    }
    assert "91 °C" in evidence.throttled_by_heat(hot, situation([])).title
    assert evidence.throttled_by_heat(seen(throttled_hw_thermal_share=0.1), situation([])) is None


def test_a_lowered_power_limit_is_named_with_the_command_that_raises_it():
    capped = seen(throttled_sw_power_cap_share=0.9)
    lowered = machine(replace(H100, power_limit_w=450.0, power_limit_default_w=700.0))
    found = evidence.throttled_by_power(capped, situation([], lowered))
    assert (found.id, found.severity) == ("power_limit_lowered", "warning")
    assert "450 W" in found.title
    assert [card.index for card in found.cards] == [0]
    braked = evidence.throttled_by_power(seen(throttled_hw_power_brake_share=0.5), situation([]))
    assert (braked.id, braked.severity) == ("power_brake", "warning")


def test_others_on_the_card_and_a_hypervisor():
    assert evidence.other_process(seen(gpu_processes_max=3.0), situation([])).title.startswith("2 other processes")
    assert evidence.other_process(seen(), situation([])) is None
    guest = machine(replace(H100, virtualization="passthrough"))
    assert "passthrough" in evidence.virtual_machine(seen(), situation([], guest)).title
    assert evidence.virtual_machine(seen(), situation([])) is None


def test_a_cpu_that_is_limited_stolen_or_busy():
    product = row("cpu_matmul", "cpu", parameters={"threads": 8}, context={"stolen_share": 0.2, "other_cpus_max": 1.5})
    small = replace(machine(gpu=None), container=Container(cpu_quota_cores=2.0))
    scene = situation([], small, device="cpu")
    found = [cause(product, scene).id for cause in evidence.CPU_CAUSES]
    assert found == ["cgroup_cpu_limit", "cpu_stolen", "cpu_busy"]
    calm = row("cpu_matmul", "cpu", parameters={"threads": 2}, context={"stolen_share": 0.0, "other_cpus_max": 0.0})
    assert [cause(calm, scene) for cause in evidence.CPU_CAUSES] == [None, None, None]


def test_a_slot_below_the_card_is_info():
    old_slot = machine(with_link(generation_max=3, generation_gpu_max=5))
    found = evidence.slot_limited(situation([], old_slot))
    assert (found.id, found.severity) == ("pcie_slot_limits_gpu", "info")
    assert evidence.slot_limited(situation([])) is None
    unknown = machine(with_link(generation_gpu_max=Absent("not supported")))
    assert evidence.slot_limited(situation([], unknown)) is None


def test_half_rate_is_said_of_a_geforce_whose_products_were_measured():
    geforce = machine(replace(H100, brand="geforce", capability=(8, 9)))
    product = row("matmul", parameters={"dtype": "bf16"})
    assert evidence.half_rate(situation([product], geforce)).severity == "info"
    assert evidence.half_rate(situation([], geforce)) is None
    assert evidence.half_rate(situation([product])) is None


def test_what_page_locked_memory_gains():
    pinned = row(value=55.0, parameters={"host": "pinned"})
    slow, fast = (row(value=value, parameters={"host": "pageable"}) for value in (12.0, 50.0))
    assert "22%" in evidence.pageable_copies(situation([pinned, slow])).title
    assert evidence.pageable_copies(situation([pinned, fast])) is None
    assert evidence.pageable_copies(situation([slow])) is None


def test_threads_that_spin_for_cpus_on_which_others_compute():
    team = [
        row("memory_copy", "cpu", parameters={"threads": 2}, context={"other_cpus_max": n}) for n in (0.9, 1.1, 1.2)
    ]
    alone = row("memory_copy", "cpu", parameters={"threads": 1}, context={"other_cpus_max": 9.0})
    two = replace(machine(), host=replace(machine().host, cpus_usable=2.0))

    def ask(rows, **environment):
        return evidence.spinning_threads(situation(rows, two, "cpu", **environment))

    found = ask([*team, alone], openmp="libgomp")
    assert (found.id, found.severity) == ("openmp_spinning", "warning")
    assert "other processes keep 1.1 of these busy" in found.title
    assert found.fix[0].run == "export OMP_WAIT_POLICY=passive"
    assert "KMP_BLOCKTIME" in ask(team, openmp="unknown").fix[0].run
    assert ask(team, openmp="libgomp", omp_wait_policy="passive") is None
    assert ask([alone]) is None
    assert ask([row("memory_copy", "cpu", parameters={"threads": 2})]) is None
