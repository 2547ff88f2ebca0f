"""Memory of the stand-in: capacity, expandable segments, GPUs that reach each other."""

from __future__ import annotations

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
