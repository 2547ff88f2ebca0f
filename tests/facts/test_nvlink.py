"""NVLinks and the fabric through the fake library."""

from __future__ import annotations

import pytest

from gpudoc.facts.model import NOT_SUPPORTED, Absent
from gpudoc.facts.nvlink import fabric_faults
from tests.fakes.machine import A30, A100_SXM, B200, FABRIC_IS_WELL, H100, L40S, V100, FakeMachine


def gpu_of(tmp_path, model, **answers):
    fake = FakeMachine(tmp_path / "m")
    fake.driver()
    fake.gpus(model)
    for function, answer in answers.items():
        fake.answer(function.replace("field_", "field."), answer)
    (gpu,) = fake.collect(quick=True).gpus
    return gpu


@pytest.mark.parametrize(
    ("model", "links"), [(H100, (18, 18)), (A100_SXM, (12, 12)), (A30, (0, 4))], ids=lambda x: str(x)[:20]
)
def test_links_are_counted_up_and_in_all(tmp_path, model, links):
    gpu = gpu_of(tmp_path, model)
    assert (gpu.nvlink_active, gpu.nvlink_total) == links


def test_a_card_without_nvlink_has_no_number_of_links(tmp_path):
    gpu = gpu_of(tmp_path, L40S)
    assert (gpu.nvlink_active, gpu.nvlink_errors, gpu.nvlink_errors_added) == (Absent(NOT_SUPPORTED),) * 3


@pytest.mark.parametrize(
    ("model", "counter"),
    [(H100, "field_162"), (B200, "field_208"), (V100, "field_38")],
    ids=["each link", "from Blackwell on", "totals of an old driver"],
)
def test_errors_are_read_twice_by_the_counters_that_there_are(tmp_path, model, counter):
    still = gpu_of(tmp_path / "still", model)
    assert (still.nvlink_errors, still.nvlink_errors_added) == (0, 0)
    growing = gpu_of(tmp_path / "growing", model, **{counter: "7 3"})
    assert growing.nvlink_errors >= 7
    assert growing.nvlink_errors_added > 0


def test_errors_that_were_counted_before_are_not_new(tmp_path):
    gpu = gpu_of(tmp_path, H100, field_161=5)
    assert (gpu.nvlink_errors, gpu.nvlink_errors_added) == (5 * 18, 0)


def test_the_fabric_says_state_status_and_health(tmp_path):
    gpu = gpu_of(tmp_path / "well", H100)
    assert (gpu.fabric_state, gpu.fabric_status, gpu.fabric_health) == ("completed", 0, ())
    bad = FABRIC_IS_WELL & ~(3 << 4) | 1 << 4
    gpu = gpu_of(tmp_path / "bad", H100, nvmlDeviceGetGpuFabricInfo=f"3 999 {bad}")
    assert (gpu.fabric_state, gpu.fabric_status, gpu.fabric_health) == ("completed", 999, ("route unhealthy",))


def test_an_older_driver_has_a_state_and_no_health(tmp_path):
    fake = FakeMachine(tmp_path / "m")
    fake.driver()
    fake.gpus(H100)
    fake.error("nvmlDeviceGetGpuFabricInfoV", 13)
    (gpu,) = fake.collect(quick=True).gpus
    assert (gpu.fabric_state, gpu.fabric_status) == ("completed", 0)
    assert gpu.fabric_health == Absent("this driver is too old for this query")


def test_a_gpu_outside_any_fabric_has_none(tmp_path):
    gpu = gpu_of(tmp_path, H100, nvmlDeviceGetGpuFabricInfo="0")
    assert (gpu.fabric_state, gpu.fabric_health) == (Absent(NOT_SUPPORTED), Absent(NOT_SUPPORTED))


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (0, 1, "degraded bandwidth"),
        (2, 1, "route recovery in progress"),
        (4, 1, "route unhealthy"),
        (6, 1, "recovery from an access timeout"),
        (12, 2, "no partition assigned"),
        (14, 2, "fabric manager disconnected"),
        (8, 5, "incorrect configuration: too few NVLinks"),
        (8, 14, "incorrect configuration: 14"),
    ],
)
def test_each_part_of_the_health_mask_has_its_fault(place, value, says):
    width = 0xF if place == 8 else 0x3
    assert fabric_faults(FABRIC_IS_WELL) == fabric_faults(0) == ()
    assert fabric_faults(FABRIC_IS_WELL & ~(width << place) | value << place) == (says,)
