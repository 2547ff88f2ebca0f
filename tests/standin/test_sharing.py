"""A second process that computes on the GPU: long runs end before they begin, unless told to share it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.standin.gpus import StandIn

pytestmark = pytest.mark.standin
WORKS = "while True: x = x @ x / 100; torch.cuda.synchronize()"
TRAIN = ("train", "--profile", "off", "--steps", "2", "--run-dir", "run")
LINES = (
    TRAIN,
    ("tune", "--model", "quickstart", "--budget", "60s", "--max-batch", "2", "--only", "batch"),
    ("bench", "--quick", "--only", "matmul"),
)


@contextmanager
def neighbour(gpus: StandIn, does: str, *, after_s: int = 0) -> Iterator[int]:
    """Another process with a context on the first GPU, and its pid; `after_s`: seconds since it computed."""
    begins = f"import time, torch; x = torch.ones(64, 64, device='cuda:0'); x = x @ x; time.sleep({after_s})"
    code = f"{begins}; print(1, flush=True)\n{does}"
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=gpus.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_beside_a_process_that_computes_each_command_ends_and_names_it(standin):
    gpus = standin(gpus=2, memory="4G")
    with neighbour(gpus, WORKS) as pid:
        for arguments in LINES:
            refused = gpus.gpudoc(*arguments, "--device", "cuda:0")
            assert refused.returncode == 1, (arguments, refused.stderr)
            assert "other processes compute on cuda:0: " in refused.stderr
            assert f"(pid {pid}, " in refused.stderr
            assert "--device cuda:1, which is idle; or --shared" in refused.stderr


def test_with_shared_it_trains_beside_it_and_beside_one_that_rests_it_needs_no_word(standin):
    gpus = standin(memory="4G")
    with neighbour(gpus, WORKS) as pid:
        beside = gpus.forked(*TRAIN, "--device", "cuda:0", "--shared")
    assert beside.returncode == 0, beside.stderr
    assert f"(pid {pid}, " in beside.stdout + beside.stderr
    with neighbour(gpus, "input()", after_s=3):
        rests = gpus.forked("train", "--profile", "off", "--steps", "2", "--run-dir", "other", "--device", "cuda:0")
    assert rests.returncode == 0, rests.stderr
    assert "other processes compute" not in rests.stdout + rests.stderr
