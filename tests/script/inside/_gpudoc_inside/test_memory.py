"""Memory is counted as gpudoc counts it elsewhere, and asking starts nothing on a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from gpudoc.process.memory import read_process_memory
from gpudoc.script.inside._gpudoc_inside import report


def test_the_peak_on_the_host_is_what_the_memory_limit_counts():
    torch.zeros(1 << 20)
    expected = read_process_memory().peak_data_bytes
    told = report.peaks()
    assert told["peak_allocated_bytes"] is None
    assert abs(told["peak_bytes"] - expected) <= 1 << 24


def test_a_gpu_that_the_script_started_is_asked_and_no_other(monkeypatch):
    calls = []
    card = SimpleNamespace(
        is_initialized=lambda: bool(calls),
        max_memory_reserved=lambda: 20,
        max_memory_allocated=lambda: 10,
        memory_stats=lambda: {"allocated_bytes.all.current": 5, "num_alloc_retries": 1},
        mem_get_info=lambda: (3, 30),
        memory_reserved=lambda: 15,
    )
    monkeypatch.setattr(torch, "cuda", card)
    assert report.cuda() is None
    assert report.allocator_numbers() == {}
    calls.append("started")
    assert report.peaks() == {"peak_bytes": 20, "peak_allocated_bytes": 10, "device_bytes": 18}
    assert report.allocator_numbers() == {"allocated": 5, "retries": 1, "free": 3, "total": 30}
