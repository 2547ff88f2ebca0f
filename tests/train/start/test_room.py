"""A GPU without room to begin: how full, by whom, and how much is needed."""

from __future__ import annotations

import os

import pytest
import torch

from gpudoc.facts.model import Absent, CudaDevice, Driver, Gpu, GpuProcess, Machine
from gpudoc.train.ranks.distributed import abandoned
from gpudoc.train.start.room import is_taken, no_room
from gpudoc.units import GIB
from gpudoc.workload.build import load_workload
from tests.train.support import write_workload


def machine(*processes, free=GIB, mode="default"):
    gpus = (
        Gpu(
            index=0,
            pci_address="0000:10:00.0",
            memory_total_bytes=16 * GIB,
            memory_free_bytes=free,
            compute_mode=mode,
            processes=processes,
        ),
        Gpu(index=1, pci_address="0000:11:00.0", memory_total_bytes=16 * GIB, memory_free_bytes=15 * GIB, processes=()),
    )
    devices = tuple(CudaDevice(ordinal=gpu.index, pci_address=gpu.pci_address) for gpu in gpus)
    return Machine(gpus=gpus, driver=Driver(cuda_devices=devices))


@pytest.fixture
def workload(tmp_path):
    return load_workload(str(write_workload(tmp_path)))


def test_it_names_who_holds_the_memory_and_what_is_needed(workload, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    others = (
        GpuProcess(pid=7, name="Xorg", memory_bytes=GIB),
        GpuProcess(pid=8, name="python", memory_bytes=14 * GIB),
        GpuProcess(pid=9, name=Absent("not visible"), memory_bytes=Absent("no")),
    )
    problem = no_room(torch.device("cuda:0"), workload, lambda: machine(*others))
    assert problem.exit_code == 1
    assert "cuda:0 has too little free memory to begin: 1 GiB of 16 GiB is free" in problem.message
    assert (
        "is free; python (pid 8) holds 14 GiB; Xorg (pid 7) holds 1 GiB; a process (pid 9); weights" in problem.message
    )
    # 8 x 16 + 16 weights and biases, 16 + 1 behind them, four numbers of four bytes each
    assert f"need {4 * 4 * (8 * 16 + 16 + 16 + 1) / 1024:.2f} KiB" in problem.message
    assert problem.hint == "wait for it or ask its owner (pid 8); or use --device cuda:1, where 15 GiB is free"


def test_what_this_process_holds_counts_as_free(workload):
    own = GpuProcess(pid=os.getpid(), name="python", memory_bytes=15 * GIB)
    problem = no_room(torch.device("cuda:0"), workload, lambda: machine(own))
    assert "16 GiB of 16 GiB is free" in problem.message
    assert "holds" not in problem.message
    assert "smaller model" in problem.hint


def test_without_facts_it_still_says_what_is_needed(workload):
    problem = no_room(torch.device("cuda:0"), workload, Machine)
    assert "cuda:0 has too little free memory to begin: out of memory; weights" in problem.message


def test_under_a_limit_the_limit_is_what_is_too_small(workload):
    problem = no_room(torch.device("cuda:0"), workload, Machine, 3 * GIB)
    assert problem.message.startswith("out of memory before the first step under --memory-limit 3 GiB; weights")
    assert "higher --memory-limit" in problem.hint


def test_a_cpu_without_room_says_what_is_needed(workload):
    problem = no_room(torch.device("cpu"), workload, Machine)
    assert problem.exit_code == 1
    assert problem.message.startswith(
        "out of memory before the first step; weights, gradients and optimizer state need"
    )


def test_a_gpu_in_exclusive_mode_is_not_called_full(workload):
    other = GpuProcess(pid=8, name="python", memory_bytes=GIB)
    problem = no_room(torch.device("cuda:0"), workload, lambda: machine(other, free=15 * GIB, mode="exclusive_process"))
    assert (
        "cuda:0 has too little free memory to begin: its compute mode is exclusive_process; python (pid 8) holds 1 GiB"
        in problem.message
    )


def test_what_counts_as_taken():
    assert is_taken(RuntimeError("CUDA error: out of memory"))
    assert is_taken(RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable"))
    assert is_taken(abandoned())
    assert not is_taken(RuntimeError("CUDA error: no kernel image is available"))
