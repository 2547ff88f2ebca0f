"""A snapshot beside the run: what the error said goes with what the allocator says, and doctor reads the file."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
import torch
from torch import nn

from gpudoc.facts.readers.dumps import read_dump
from gpudoc.train.loop.snapshot import Snapshots
from tests.train.step.test_step import stepper

TOLD = (
    "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.15 GiB of which 612.56 MiB is "
    "free. Of the allocated memory 76.99 GiB is allocated by PyTorch"
)
SEGMENT = {
    "device": 0,
    "total_size": 900,
    "allocated_size": 700,
    "blocks": [{"size": 700, "state": "active_allocated"}],
}


@pytest.fixture
def snapshots(tmp_path, monkeypatch):
    found = stepper(nn.Linear(6, 1).double())
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda device: {"segments": [SEGMENT], "device_traces": []})
    found.parts = replace(found.parts, device=torch.device("cuda"))
    return Snapshots(tmp_path, 3, found)


def test_the_request_what_was_left_and_whose_it_is_are_read_again(snapshots, tmp_path):
    path = snapshots.take(RuntimeError(TOLD))
    assert path == tmp_path / "memory-rank3.pickle"
    (gpu,) = read_dump(path.read_bytes(), path.name)
    assert gpu.wanted_bytes == 3 << 29
    assert gpu.device_free_bytes == int(612.56 * 2**20)
    assert dict(gpu.owners).keys() == {"weights", "gradients", "optimizer"}
    assert gpu.allocated_bytes == 700


def test_an_error_without_figures_leaves_them_out(snapshots):
    content = pickle.loads(snapshots.take(RuntimeError("CUDA error: out of memory")).read_bytes())
    assert content["gpudoc"]["wanted_bytes"] is None
    assert content["gpudoc"]["device_free_bytes"] is None


def test_a_disk_that_is_full_or_a_dead_gpu_does_not_hide_the_error(snapshots, tmp_path, monkeypatch):
    def refuse(device):
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda.memory, "_snapshot", refuse)
    assert snapshots.take(RuntimeError(TOLD)) is None
    assert list(tmp_path.iterdir()) == []


def test_a_cpu_has_no_snapshot(tmp_path):
    assert Snapshots(tmp_path, 0, stepper(nn.Linear(6, 1).double())).take(MemoryError()) is None
