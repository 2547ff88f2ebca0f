"""GPUs on which CUDA itself never runs out: Windows' driver goes on in the host's memory, others share it."""

from __future__ import annotations

import json
import sys

import pytest

from gpudoc.script.hook import environment
from gpudoc.script.messages import HookOrder
from tests.standin.test_script import SCRIPT
from tests.train.support import write_workload

pytestmark = pytest.mark.standin

TAKE = """
import torch
kept = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(4)]
print("took all")
"""


def test_a_script_under_a_limit_has_an_error_where_the_driver_would_go_on(standin, tmp_path):
    gpus = standin(memory="2G", spill=1)
    (tmp_path / "take.py").write_text(TAKE)
    assert gpus.run(sys.executable, "take.py").stdout == "took all\n"
    (tmp_path / "events").mkdir()
    order = HookOrder(purpose="trial", device_limit_bytes=3 << 29)
    limited = gpus.run(sys.executable, "take.py", **environment(tmp_path / "events", order, gpus.environment))
    assert "OutOfMemoryError" in limited.stderr


def test_under_windows_driver_a_training_takes_no_more_than_the_card_has(standin):
    code = (
        "import torch; from gpudoc.train import limits; limits.is_wsl = lambda: True; here = torch.device('cuda:0')\n"
        "share = limits.card_share(here); limits.enforce(share.limit_bytes, here); print(share.limit_bytes >> 20)\n"
        "torch.empty(3 << 30, dtype=torch.uint8, device=here)"
    )
    done = standin(memory="2G", spill=1).python(code)
    # the card's 2 GiB less what the context takes
    assert done.stdout == "1598\n", done.stderr
    assert "OutOfMemoryError" in done.stderr


def test_a_training_takes_half_of_what_it_shares_with_the_system(standin, tmp_path):
    config = write_workload(tmp_path)
    line = ("train", "--model", str(config), "--profile", "off", "--device", "cuda", "--steps", "2")
    done = standin(memory="2G", integrated=1).gpudoc(*line)
    assert done.returncode == 0, done.stderr
    assert "half of the 1.56 GiB of free memory, which this GPU shares with the system" in done.stderr


def test_the_batch_search_of_a_script_stops_at_half_of_what_is_shared(standin, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    command = ("--only", "batch", "--goal", "largest", "--budget", "15m", "--json", "--in-place", "--out", "p.yaml")
    done = standin(memory="2G", math_ops="1e6", integrated=1).gpudoc("tune", *command, "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    assert "which this GPU shares with the system" in done.stderr
    evidence = json.loads(done.stdout)["profile"]["evidence"]
    assert 700 << 20 < evidence["memory_limit_bytes"] < 850 << 20
    failed = [row["batch"] for row in evidence["trials"] if not row["fits"]]
    # 2 MiB a sample
    assert evidence["largest_batch"] < min(failed) < 450


def test_trials_of_a_script_leave_a_display_its_part_of_the_card(standin, tmp_path):
    """A window that opens while a trial runs finds memory: torch keeps below its limit in the trial, too."""
    (tmp_path / "train.py").write_text(SCRIPT)
    command = ("--only", "batch", "--budget", "5m", "--max-batch", "64", "--json", "--in-place", "--out", "p.yaml")
    gpus = standin(memory="4G", math_ops="1e6", display=1)
    done = gpus.gpudoc("tune", *command, "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    assert "what is free now less 1 GiB for the display" in done.stderr
    # the card's 4 GiB less the context and that
    limit_bytes = json.loads(done.stdout)["profile"]["evidence"]["memory_limit_bytes"]
    assert limit_bytes == pytest.approx((4 << 30) - (450 << 20) - (1 << 30), rel=0.01)
