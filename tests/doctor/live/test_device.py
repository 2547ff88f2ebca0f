import pytest

from gpudoc.doctor.live.device import summarise_devices
from gpudoc.facts.model import Absent
from tests.facts.live.made import gpu, watch


def use(**changes):
    return summarise_devices(watch({1: "backward*100"}, gpus=(gpu(**changes),)))[0]


def test_averages_over_the_watch():
    found = use(busy=lambda i: 100 if i % 2 else 0, power=200.0)
    assert found.busy == pytest.approx(0.5)
    assert found.power_share == pytest.approx(0.5)
    assert found.is_ours


def test_heat_counts_and_the_power_cap_does_not():
    assert use(throttle_reasons=("software power cap",)).hot_share == 0
    assert use(throttle_reasons=lambda i: ("hardware thermal slowdown",) if i < 50 else ()).hot_share == 0.25


def test_the_best_link_that_was_seen_is_the_link():
    found = use(pcie_generation=lambda i: 1 if i % 3 else 3)
    assert found.link_now == (3, 16)
    assert found.link_share == 0.5


def test_what_nvml_does_not_give_is_none_and_not_zero():
    found = use(power_w=Absent("not supported"), temperature_c=Absent("not supported"))
    assert found.power_share is None
    assert found.temperature_c is None


def test_the_jobs_own_gpus_are_judged_when_they_are_known():
    mine, other = gpu(users=((1, 50.0),)), gpu(users=((9, 50.0),))
    assert len(summarise_devices(watch({1: "backward*100"}, gpus=(mine, other)))) == 1
    assert isinstance(summarise_devices(watch({1: "backward*100"})), Absent)


def test_the_counters_are_averages_of_the_looks_that_have_them():
    found = use(tensor_active_percent=lambda i: 4.0 if i % 10 == 0 else Absent("between"), sm_active_percent=60.0)
    assert (found.tensor_active, found.sm_active, found.dram_active) == (pytest.approx(0.04), pytest.approx(0.6), None)
    assert "SMs 60 %, tensor cores 4 %, power" in found.observations()[0].value
    assert "tensor" not in use().observations()[0].value
