from types import SimpleNamespace

import torch

from gpudoc.bench.gpu import read_traits, sample_gpu
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
