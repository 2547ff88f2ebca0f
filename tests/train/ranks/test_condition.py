"""What a slow rank tells of itself: what is known, and nothing in the place of what is not."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import torch

from gpudoc.facts.gpu_counters import GpuCounters
from gpudoc.facts.model import Absent
from gpudoc.train.ranks import condition
from gpudoc.train.ranks.condition import RankCondition


def test_a_cpu_rank_tells_its_host_and_how_long_it_waited_for_a_cpu(monkeypatch, tmp_path):
    scheduled = tmp_path / "schedstat"
    scheduled.write_text("1000000000 2000000000 17\n")
    monkeypatch.setattr(condition, "_SCHEDULED", scheduled)
    now = iter([100.0, 104.0, 110.0])
    monkeypatch.setattr(condition, "monotonic", lambda: next(now))
    looks = RankCondition(torch.device("cpu"))
    scheduled.write_text("1500000000 3000000000 18\n")
    assert looks.look() == {"host": socket.gethostname(), "waits_for_a_cpu": "25% of the time"}
    scheduled.unlink()
    assert looks.look() == {"host": socket.gethostname()}


def test_a_gpu_rank_tells_clock_throttling_and_link_as_far_as_nvml_answers(monkeypatch):
    properties = SimpleNamespace(name="H100", pci_domain_id=0, pci_bus_id=0x3B, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    asked = []

    def counters(address):
        asked.append(address)
        return lambda: GpuCounters(
            sm_clock_mhz=1200,
            throttle_reasons=("hw_slowdown",),
            link_generation=4,
            link_width=8,
            temperature_c=Absent("x"),
        )

    monkeypatch.setattr(condition, "open_counters", counters)
    told = RankCondition(torch.device("cuda", 1)).look()
    assert asked == ["0000:3b:00.0"]
    wanted = {"gpu": "1 (H100)", "sm_clock_mhz": 1200, "throttled": "hw_slowdown", "link": "PCIe 4 x8"}
    assert {key: told[key] for key in wanted} == wanted
    assert "temperature_c" not in told
    monkeypatch.setattr(condition, "open_counters", lambda address: Absent("no NVML"))
    assert "gpu" not in RankCondition(torch.device("cuda", 1)).look()
