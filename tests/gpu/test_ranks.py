"""Two GPUs over NCCL under the real command: as one GPU, one-rank OOM in and after probation, sharded and back."""

import json

import pytest
import torch
from safetensors.torch import load_file

from tests.standin.gpus import PATIENCE_S
from tests.train.ranks.test_distributed import told, torchrun
from tests.train.start import test_place
from tests.train.support import ROOT

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
REAL_OOM = """
        if self.calls == self.oom_at and os.environ.get("RANK") == "1" and AGAIN:
            torch.empty(1 << 50, device=x.device, dtype=torch.uint8)
"""


@pytest.fixture
def place(tmp_path):
    first, _, rest = test_place.MODULE.partition("        if self.calls == self.oom_at")
    after = rest[rest.index("        return self.body(x)") :]
    # a real allocation that cannot succeed; in the first attempt only, so that a restart gets on
    raising = REAL_OOM.replace("AGAIN", 'os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"')
    (tmp_path / "ranked.py").write_text(first + raising.lstrip("\n") + after)
    return tmp_path


def train(place, run, *arguments, steps=12, oom_at=-1):
    config = place / f"c{oom_at}.yaml"
    text = test_place.CONFIG.format(sleep=0.0, oom_at=oom_at, raise_at=-1, most=99)
    text = text.replace("steps: 12", f"steps: {steps}")
    config.write_text(text)
    import os
    import subprocess
    import sys

    command = [sys.executable, "-m", "gpudoc", "train", "--model", str(config), "--device", "cuda", "--profile", "off"]
    command += ["--run-dir", str(place / run), "--plain", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def weights(place, run, step):
    return load_file(place / run / "checkpoints" / f"step-{step}" / "model.safetensors")


def assert_near(first, second):
    assert first.keys() == second.keys()
    assert all((first[name] - second[name]).abs().max() < 1e-4 for name in first)


def test_two_gpus_train_as_one_does(place):
    train(place, "one", "--gpus", "1", steps=120)
    said = train(place, "two", "--gpus", "2", steps=120)
    assert "2 processes x micro batch" in said
    assert_near(weights(place, "one", 120), weights(place, "two", 120))


def test_out_of_memory_on_one_gpu_in_probation_is_voted_on(place):
    train(place, "one", "--gpus", "1")
    train(place, "two", "--gpus", "2", oom_at=5)
    rescues = json.loads((place / "two" / "summary.json").read_text())["rescues"]
    assert [row["rescue"]["to_batch"] for row in rescues] == [2]
    assert_near(weights(place, "one", 12), weights(place, "two", 12))


def test_out_of_memory_while_gradients_are_exchanged_starts_all_again(place):
    """After 50 steps DDP reduces in backward: the other rank waits in NCCL, and only a restart helps."""
    train(place, "one", "--gpus", "1", steps=70)
    train(place, "two", "--gpus", "2", steps=70, oom_at=60)
    summary = json.loads((place / "two" / "summary.json").read_text())
    assert summary["resumed_from"] == "step-58"
    assert [row["rescue"]["to_batch"] for row in summary["rescues"]] == [2]
    assert_near(weights(place, "one", 70), weights(place, "two", 70))


def test_ddp_overlaps_after_its_probation(tmp_path):
    done = torchrun(
        tmp_path,
        """
        from gpudoc.train.ranks.distributed import PROBATION_STEPS
        device = torch.device("cuda", place.local_rank)
        ranks = join(place, device)
        with device:
            model = torch.nn.Linear(32, 32)
        parallel = ranks.wrap(model)
        seen, equal = [], True
        for step in range(PROBATION_STEPS + 3):
            model.zero_grad()
            ranks.begin_step()
            with ranks.accumulating(parallel, True):
                (parallel(torch.ones(2, 32, device=device)).sum() * (place.rank + 1)).backward()
            seen.append(ranks.is_overlapping)
            ranks.vote(0)
            ranks.reduce_gradients(list(model.parameters()))
            equal = equal and abs(model.weight.grad[0, 0].item() - 3.0) < 1e-5
        told = {"overlapped": seen.count(True), "last": seen[-1], "equal": equal}
        (out / f"{place.rank}.json").write_text(json.dumps(told))
        ranks.leave()
        """,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert told(tmp_path, 0) == told(tmp_path, 1) == {"overlapped": 3, "last": True, "equal": True}
