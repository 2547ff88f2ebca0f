"""Memory of the stand-in: capacity, expandable segments, GPUs that reach each other."""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.standin

SEGMENTS = """
import torch
kept = [torch.full((4 << 20,), value, dtype=torch.uint8, device="cuda") for value in range(8)]
more = torch.ones(64 << 20, dtype=torch.uint8, device="cuda")
segments = torch.cuda.memory_snapshot()
print(any(segment["is_expandable"] for segment in segments), all(int(t[-1]) == i for i, t in enumerate(kept)))
held = torch.cuda.mem_get_info()[0]
del kept, more
torch.cuda.empty_cache()
print(torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0] - held >= 96 << 20)
try:
    torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("full")
"""


def test_memory_beyond_the_capacity_is_pytorchs_own_out_of_memory_error(standin):
    done = standin(memory="2G").python(
        "import torch\n"
        "kept = torch.empty(1 << 30, dtype=torch.uint8, device='cuda')\n"
        "try:\n    torch.empty(1 << 30, dtype=torch.uint8, device='cuda')\n"
        "except torch.OutOfMemoryError as error:\n    print(error)\n"
    )
    assert "CUDA out of memory. Tried to allocate 1024.00 MiB" in done.stdout, done.stderr


def test_expandable_segments_keep_numbers_grow_and_are_given_back(standin):
    done = standin(memory="2G").python(SEGMENTS, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert done.stdout.split() == ["True", "True", "0", "True", "full"], done.stdout + done.stderr


def test_what_another_process_holds_cannot_be_had(standin):
    gpus = standin(memory="2G")
    done = gpus.python(
        "import subprocess, sys, torch\n"
        "kept = torch.empty(600 << 20, dtype=torch.uint8, device='cuda')\n"
        "code = 'import torch; print(torch.cuda.mem_get_info()[0] >> 20)'\n"
        "subprocess.run([sys.executable, '-c', code])\n"
    )
    assert int(done.stdout) == 2048 - 600 - 2 * 450, done.stderr
    assert gpus.holders() == []


@pytest.mark.parametrize("peers", [1, 0])
def test_gpus_copy_to_each_other(standin, peers):
    done = standin(gpus=2, peers=peers).python(
        "import torch\n"
        "print(torch.cuda.can_device_access_peer(0, 1))\n"
        "x = torch.arange(1000., device='cuda:0').to('cuda:1')\n"
        "print(x.device, float(x.sum()))\n"
    )
    assert done.stdout.split() == [str(bool(peers)), "cuda:1", "499500.0"], done.stderr


# PyTorch chooses it when it is loaded, so these have a start of their own
ASYNCHRONOUS = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
POOL = """
import torch
MIB = 1 << 20
def held(): return before - torch.cuda.mem_get_info()[0] >> 20
torch.cuda.init()
before = torch.cuda.mem_get_info()[0]
small = [torch.ones(10, device="cuda") for _ in range(1000)]
print(held(), torch.cuda.memory_allocated() // 1000, torch.cuda.memory_reserved() >> 20)
large = torch.full((200 * MIB,), 3, dtype=torch.uint8, device="cuda")
print(held(), int(large[-1]), torch.cuda.max_memory_reserved() >> 20)
del large
torch.cuda.synchronize()
again = torch.zeros(150 * MIB, dtype=torch.uint8, device="cuda")
print(held(), int(again.sum()), float(small[7].sum()))
del again
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
print(held(), torch.cuda.max_memory_reserved() >> 20)
"""


def test_the_asynchronous_allocator_takes_from_a_pool_that_keeps_what_is_freed(standin):
    done = standin(memory="2G").run(sys.executable, "-c", POOL, **ASYNCHRONOUS)
    rows = [line.split() for line in done.stdout.splitlines()]
    # small tensors of 512 bytes share a piece; a large one grows the pool by pieces; what is freed serves the next
    assert rows == [["32", "512", "32"], ["224", "3", "224"], ["224", "0", "10.0"], ["2", "2"]], done.stderr


def test_a_pool_without_a_threshold_gives_back_what_is_free_at_a_synchronisation(standin):
    code = (
        "import ctypes, torch\n"
        "torch.cuda.init()\n"
        "library = ctypes.CDLL(None)\n"
        "at, none = ctypes.c_void_p(), ctypes.c_void_p()\n"
        "before = torch.cuda.mem_get_info()[0]\n"
        "def held(): return before - torch.cuda.mem_get_info()[0] >> 20\n"
        "assert library.cudaMallocAsync(ctypes.byref(at), ctypes.c_size_t(64 << 20), none) == 0\n"
        "print(held())\n"
        "assert library.cudaFreeAsync(at, none) == 0\n"
        "print(held())\n"
        "torch.cuda.synchronize()\n"
        "print(held())\n"
    )
    done = standin(memory="2G").python(code)
    assert done.stdout.split() == ["64", "64", "0"], done.stderr


def test_a_full_pool_is_pytorchs_own_error_in_the_words_of_that_allocator(standin):
    code = "import torch; torch.empty(3 << 30, dtype=torch.uint8, device='cuda')"
    done = standin(memory="2G").run(sys.executable, "-c", code, **ASYNCHRONOUS)
    assert "torch.OutOfMemoryError: Allocation on device" in done.stderr
