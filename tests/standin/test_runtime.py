"""What the stand-in promises of CUDA's runtime, asked of PyTorch's own CUDA code."""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.standin


def test_numbers_are_the_cpus(standin):
    done = standin().python(
        "import torch\nx = torch.randn(64, 64)\nprint(torch.allclose((x.cuda() @ x.cuda()).cpu(), x @ x, atol=1e-4))"
    )
    assert done.stdout.strip() == "True", done.stderr


def test_what_a_program_asks_of_numbers_is_answered_by_them(standin):
    done = standin().python(
        "import torch\n"
        "x = torch.arange(300., device='cuda')\n"
        "print(torch.equal(x, x.clone()), torch.equal(x, x + 1), len(x[x > 100]), len((x % 7).unique()))"
    )
    assert done.stdout.split() == ["True", "False", "199", "7"], done.stderr


@pytest.mark.parametrize(
    ("visible", "count"), [("1", 1), ("1,0", 2), ("0,7,1", 1), ("", 0), ("GPU-a1a2a3a4-a5a6-a7a8-a9aa-abacadaeafb0", 1)]
)
def test_a_process_sees_the_gpus_that_it_is_told_to(standin, visible, count):
    code = "import torch; print(torch.cuda.device_count(), torch.cuda.is_available())"
    done = standin(gpus=2).python(code, CUDA_VISIBLE_DEVICES=visible)
    assert done.stdout.split() == [str(count), str(count > 0)], done.stderr


def test_what_is_forked_after_cuda_was_used_cannot_use_it(standin):
    done = standin().python(
        "import os, torch\n"
        "torch.zeros(1, device='cuda')\n"
        "if os.fork() == 0:\n"
        "    try:\n        torch.zeros(1, device='cuda')\n"
        "    except RuntimeError as error:\n        print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    assert "Cannot re-initialize CUDA in forked subprocess" in done.stdout, done.stderr


def test_every_context_is_written_down(standin):
    gpus = standin(gpus=2)
    code = "import os, torch; torch.zeros(1, device='cuda:1'); print(os.getpid())"
    done = gpus.run(sys.executable, "-c", code)
    assert [(pid, gpu) for pid, gpu, _ in gpus.contexts()] == [(int(done.stdout), 1)], done.stderr
    assert "torch.zeros" in gpus.contexts()[0][2]
