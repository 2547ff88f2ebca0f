"""Faults on demand: errors that stay, a lost GPU, uncorrectable memory."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.standin

UNTIL_IT_FAILS = """
import torch
x = torch.zeros(10, device="cuda")
done = 0
try:
    for _ in range(100):
        x += 1
        done += 1
except RuntimeError as error:
    print(done, str(error).splitlines()[0])
for again in (torch.cuda.synchronize, lambda: torch.ones(1, device="cuda"), x.cpu):
    try:
        again()
        print("recovered")
    except RuntimeError as error:
        print(str(error).splitlines()[0])
"""
ASK = (
    "import pynvml\npynvml.nvmlInit()\n"
    "def ask(gpu):\n"
    "    try:\n        h = pynvml.nvmlDeviceGetHandleByIndex(gpu)\n"
    "        return pynvml.nvmlDeviceGetTotalEccErrors(h, 1, 0)\n"
    "    except pynvml.NVMLError as error:\n        return error\n"
    "print(ask(0), '|', ask(1))\n"
)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("illegal", "an illegal memory access was encountered"),
        ("ecc", "uncorrectable ECC error encountered"),
        ("launch", "unspecified launch failure"),
        ("assert", "device-side assert triggered"),
        ("lost", "unknown error"),
    ],
)
def test_an_error_comes_when_it_is_wanted_and_stays(standin, kind, words):
    done = standin(fault=kind, fault_after=20).python(UNTIL_IT_FAILS)
    first, *later = done.stdout.splitlines()
    count, _, said = first.partition(" ")
    assert 0 < int(count) < 20, done.stderr
    assert words in said
    assert len(later) == 3
    assert all(words in line for line in later)


@pytest.mark.parametrize(("kind", "shown"), [("lost", "GPU is lost | 0"), ("ecc", "1 | 0"), ("illegal", "0 | 0")])
def test_what_befell_a_gpu_is_seen_by_who_asks_nvml(standin, kind, shown):
    gpus = standin(gpus=2, fault=kind, fault_after=0)
    gpus.python("import torch; torch.zeros(1, device='cuda').sin_()")
    assert gpus.python(ASK).stdout.strip() == shown


def test_a_gpu_that_was_lost_before_fails_alone(standin):
    gpus = standin(gpus=2, lost=0)
    assert gpus.python(ASK).stdout.strip() == "GPU is lost | 0"
    done = gpus.python("import torch; print(float(torch.ones(1, device='cuda')))", CUDA_VISIBLE_DEVICES="1")
    assert done.stdout.strip() == "1.0", done.stderr
    assert "unknown error" in gpus.python("import torch; torch.ones(1, device='cuda:0')").stderr
