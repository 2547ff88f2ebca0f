"""A collective of NCCL that never ends, named by PyTorch's own flight recorder; a GPU that is slower than the other."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.standin.test_train import line, place, summary
from tests.train.start.faulty import WATCHED

pytestmark = pytest.mark.standin


def test_a_collective_of_nccl_that_never_ends_is_told_by_the_flight_recorder(standin, tmp_path):
    place(tmp_path, steps=200)
    script = tmp_path / "watched.py"
    script.write_text(WATCHED)
    gpus = standin(gpus=2, memory="2G", hang_after=100)
    done = gpus.run(sys.executable, script, *line(tmp_path, "run", "--no-preflight", "--on-hang", "end", "--json"), "3")
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert "NCCL's flight recorder: rank 0, 1 in all_reduce" in told["message"], done.stderr
    assert "--resume" in told["hint"]
    assert "rank 1 (pid " in done.stderr
    assert "deprecated" not in done.stderr


def test_a_gpu_that_is_slower_is_named_with_its_clock_and_link(standin, tmp_path):
    """From step 51 on DDP reduces in backward, and there the rank with the faster GPU waits."""
    place(tmp_path, model={"hidden": 20_000}, steps=80)
    gpus = standin(gpus=2, memory="2G", slow_gpu=1, slow_times=3, gbps=1, clock="virtual")
    done = gpus.forked(*line(tmp_path, "run", "--no-preflight"))
    assert done.returncode == 0, done.stderr
    slow = summary(Path(tmp_path) / "run")["ranks"]["slow"]
    assert (slow["rank"], slow["where"]) == (1, "computing"), done.stderr
    assert slow["factor"] == pytest.approx(3, rel=0.3)
    assert slow["sm_clock_mhz"] > 0
    assert slow["link"].startswith("PCIe ")
    assert done.stderr.count("times as slow as the others in computing") == 1
