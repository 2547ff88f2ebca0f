import contextlib
import itertools
from types import SimpleNamespace

import pytest
import torch

from gpudoc.bench import gpu as gpu_module
from gpudoc.bench.gpu import CudaGpu, read_traits, sample_gpu
from gpudoc.bench.sampling import MIN_SAMPLES, Row
from tests.bench.host_gpu import HostGpu, bench

ROW = Row(name="h2d", unit="GB/s", parameters={"bytes": 4}, device="cuda:0")


def test_the_first_batch_warms_up_and_is_dropped():
    batches = iter([[1.0, 1.0]] + [[50.0, 50.1]] * 50)
    reading = sample_gpu(bench(gpu=HostGpu()), ROW, lambda: next(batches), 30.0)
    assert min(reading.samples) == 50.0
    assert len(reading.samples) >= MIN_SAMPLES
    assert (reading.name, reading.device, reading.unit) == ("h2d", "cuda:0", "GB/s")


def test_traits_come_from_torch_and_an_older_torch_leaves_gaps(monkeypatch):
    full = SimpleNamespace(
        name="NVIDIA H100", multi_processor_count=132, L2_cache_size=52428800, major=9, minor=0,
        total_memory=85 * 10**9, is_integrated=0, pci_bus_id=0x18, pci_device_id=0, pci_domain_id=0,
    )  # fmt: skip
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: full)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    traits = read_traits(0)
    assert traits.pci_address == "0000:18:00.0"
    assert (traits.sm_count, traits.capability, traits.integrated, traits.count) == (132, (9, 0), False, 4)
    old = SimpleNamespace(name="x", multi_processor_count=80, major=7, minor=0, total_memory=1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: old)
    assert (read_traits(0).pci_address, read_traits(0).l2_bytes) == ("", 0)


class RecordedCuda:
    """torch.cuda's events and streams as a list of what was asked; the spin is over after `slow_tries` queueings."""

    def __init__(self, slow_tries=0):
        self.log, self.cycles, self.slow_tries, self.clock = [], [], slow_tries, 0.0

    def synchronize(self, index):
        self.log.append("synchronize")

    def _sleep(self, cycles):
        self.log.append("spin")
        self.cycles.append(cycles)

    def current_stream(self, index):
        return SimpleNamespace(wait_event=lambda event: self.log.append("join"))

    def Event(self, enable_timing=False):  # noqa: N802  torch's name
        cuda = self

        class Event:
            def record(self):
                cuda.clock += 1.0
                self.at = cuda.clock
                cuda.log.append("record")

            def query(self):
                cuda.slow_tries -= 1
                return cuda.slow_tries >= 0

            def elapsed_time(self, later):
                return later.at - self.at

        return Event()

    def Stream(self, index):  # noqa: N802
        return SimpleNamespace(wait_event=lambda event: self.log.append("wait"))

    def stream(self, stream):
        return contextlib.nullcontext()


def recorded(slow_tries=0):
    gpu = object.__new__(CudaGpu)
    gpu._cuda, gpu._index, gpu.name = RecordedCuda(slow_tries), 0, "cuda:0"
    gpu._streams = (gpu._cuda.Stream(0), gpu._cuda.Stream(0))
    return gpu, gpu._cuda


def test_all_work_is_queued_behind_the_spin_and_waited_for_once():
    gpu, cuda = recorded()
    times = gpu.time_each([lambda: cuda.log.append("work")] * 2, between=lambda: cuda.log.append("flush"))
    each = ["flush", "record", "work", "record"]
    assert cuda.log == ["synchronize", "spin", "record", *each, *each, "synchronize"]
    assert times == [0.001, 0.001]


def test_a_host_too_slow_to_queue_gets_a_longer_spin_and_not_for_ever():
    gpu, cuda = recorded(slow_tries=2)
    gpu.time_each([lambda: None])
    assert [later // first for first, later in itertools.pairwise(cuda.cycles)] == [4, 4]
    gpu, cuda = recorded(slow_tries=99)
    gpu.time_each([lambda: None])
    assert len(cuda.cycles) == 4


@pytest.mark.standin
def test_a_card_is_kept_busy_until_its_clocks_are_up(monkeypatch):
    gpu, clock = CudaGpu(0), iter(range(100))
    waited = []
    monkeypatch.setattr(gpu_module, "time", SimpleNamespace(monotonic=lambda: next(clock) / 10))
    monkeypatch.setattr(CudaGpu, "synchronize", lambda self: waited.append(1))
    gpu.wake()
    # the clock was read once to begin with, and once more when the time was up
    assert len(waited) == 10 * gpu_module.WAKE_S - 1


def test_long_work_needs_no_spin_and_is_queued_once():
    gpu, cuda = recorded(slow_tries=99)
    assert len(gpu.time_each([lambda: None] * 3, spin=False)) == 3
    assert cuda.cycles == []


def test_two_streams_start_behind_one_event_and_end_before_one():
    gpu, cuda = recorded()
    both, first, second = gpu.time_pair(lambda: cuda.log.append("down"), lambda: cuda.log.append("up"))
    pair = ["wait", "record", "down", "record", "wait", "record", "up", "record"]
    assert cuda.log == ["synchronize", "spin", "record", *pair, "join", "join", "record", "synchronize"]
    assert (both, first, second) == (0.005, 0.001, 0.001)
