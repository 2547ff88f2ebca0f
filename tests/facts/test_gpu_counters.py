import sys
import types

import pytest

from gpudoc.facts.gpu_counters import open_counters
from gpudoc.facts.model import Absent


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(f"error {value}")
        self.value = value


@pytest.fixture
def driver(monkeypatch):
    """A pynvml whose card has no power sensor; the border of what cannot exist here."""
    asked = {}

    def refuse(handle):
        raise NVMLError(3)

    def refuse_samples(handle, since):
        raise NVMLError(3)

    def find(address):
        asked["address"] = address
        return "handle"

    library = types.SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByPciBusId=find,
        nvmlDeviceGetCurrentClocksEventReasons=lambda handle: 0x40 | 0x4,
        nvmlDeviceGetPowerUsage=refuse,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: list(map(process, (41, 42, 43))),
        nvmlDeviceGetGraphicsRunningProcesses_v3=lambda handle: [process(77)],
        nvmlDeviceGetMPSComputeRunningProcesses_v3=refuse,
        nvmlDeviceGetProcessUtilization=refuse_samples,
        nvmlDeviceGetClockInfo=lambda handle, kind: {1: 1410, 2: 1593}[kind],
        nvmlDeviceGetTemperature=lambda handle, sensor: 71,
        nvmlDeviceGetCurrPcieLinkGeneration=lambda handle: 4,
        nvmlDeviceGetCurrPcieLinkWidth=lambda handle: 16,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    library.asked = asked
    return library


def work(pid, percent):
    return types.SimpleNamespace(pid=pid, smUtil=percent)


def process(pid):
    return types.SimpleNamespace(pid=pid, usedGpuMemory=1 << 30)


def test_one_look_holds_every_counter_and_a_missing_sensor_is_absent(driver, tmp_path):
    seen = open_counters("0000:18:00.0", tmp_path)()
    assert driver.asked["address"] == "0000:18:00.0"
    assert (seen.sm_clock_mhz, seen.memory_clock_mhz, seen.temperature_c) == (1410, 1593, 71)
    assert (seen.link_generation, seen.link_width, seen.num_processes) == (4, 16, 3)
    assert set(seen.throttle_reasons) == {"sw_power_cap", "hw_thermal"}
    assert isinstance(seen.power_w, Absent)


def test_the_server_of_mps_and_a_second_entry_of_one_process_count_for_nothing(driver, tmp_path):
    for pid, name in ((41, "nvidia-cuda-mps"), (42, "python")):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/comm").write_text(f"{name}\n")
    driver.nvmlDeviceGetComputeRunningProcesses = lambda handle: list(map(process, (41, 42, 42)))
    assert open_counters("0000:18:00.0", tmp_path)().num_processes == 1


def test_a_context_that_does_nothing_from_the_first_look_on_does_not_count(driver, tmp_path):
    samples = [work(42, 80), work(77, 5)]
    driver.nvmlDeviceGetProcessUtilization = lambda handle, since: samples
    read = open_counters("0000:18:00.0", tmp_path)
    assert read().num_processes == 1
    driver.nvmlDeviceGetComputeRunningProcesses = lambda handle: list(map(process, (41, 42, 43, 44)))
    assert read().num_processes == 2
    samples[:] = [work(41, 1)]
    assert read().num_processes == 3
    samples[:] = [work(99, 1)]
    assert read().num_processes == 4


def test_a_driver_that_does_not_start_gives_its_reason(driver):
    def fail():
        raise NVMLError(9)

    driver.nvmlInit = fail
    assert isinstance(open_counters("0000:18:00.0"), Absent)


def test_without_the_library_there_is_a_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py" in open_counters("0000:18:00.0").reason
