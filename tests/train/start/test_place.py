"""Where a training runs; and real ranks under the real command: as one process, killed, out of memory, stopped."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import psutil
import pytest
from safetensors.torch import load_file

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.train.blame import KernelError
from gpudoc.train.ranks.distributed import PeerLostError, abandoned
from gpudoc.train.request import TrainRequest
from gpudoc.train.start import launch
from gpudoc.train.start.place import as_rank, elsewhere, is_follower
from tests.train.support import ROOT, train_here

CONFIG = """
model: {{target: "ranked:Net", args: {{oom_at: {oom_at}}}}}
data: {{target: "ranked:Points", args: {{sleep: {sleep}, raise_at: {raise_at}, most: {most}}}}}
loss: {{target: "torch.nn:MSELoss"}}
optimizer: {{target: "torch.optim:SGD", args: {{lr: 0.05, momentum: 0.9}}}}
train: {{global_batch: 10, reference_batch: 8, steps: 12, log_every: 1, checkpoint_every: 2, precision: fp32}}
"""
MODULE = '''
import os, time
import torch

class Points(torch.utils.data.Dataset):
    """Has memory for `most` samples at once on rank 1."""
    def __init__(self, sleep=0.0, raise_at=-1, most=99):
        self.x = torch.randn(43, 6, generator=torch.Generator().manual_seed(1))
        self.sleep, self.raise_at, self.most = sleep, raise_at, most
    def __len__(self):
        return len(self.x)
    def __getitems__(self, indices):
        if len(indices) > self.most and os.environ.get("RANK") == "1":
            raise MemoryError("no memory for so many samples")
        return [self[index] for index in indices]
    def __getitem__(self, index):
        time.sleep(self.sleep)
        if index == self.raise_at:
            raise KeyError(f"sample {index} is broken")
        return self.x[index], self.x[index].sum(0, keepdim=True)

class Net(torch.nn.Module):
    """Says that memory ran out on rank 1 in forward number `oom_at`, as torch's CPU allocator does."""
    def __init__(self, oom_at=-1):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        self.oom_at, self.calls = oom_at, 0
    def forward(self, x):
        self.calls += 1
        if self.calls == self.oom_at and os.environ.get("RANK") == "1":
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")
        return self.body(x)
'''


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The weights that one process comes to, which every other way must come to too."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "ranked.py").write_text(MODULE)
    assert train_one(folder, "alone") == 0
    return weights(folder, "alone")


@pytest.fixture
def place(tmp_path):
    (tmp_path / "ranked.py").write_text(MODULE)
    return tmp_path


def line(place, run, *arguments, sleep=0.0, oom_at=-1, raise_at=-1, most=99) -> list[str]:
    config = place / f"c{sleep}{oom_at}{raise_at}.yaml"
    config.write_text(CONFIG.format(sleep=sleep, oom_at=oom_at, raise_at=raise_at, most=most))
    return ["--model", str(config), "--profile", "off", "--run-dir", str(place / run), "--plain", *arguments]


def train_one(place, run, *arguments) -> int:
    """One process trains, which is this one."""
    return train_here(place, *line(place, run, *arguments))


def start(place, run, *arguments, **planted) -> subprocess.Popen:
    command = [sys.executable, "-m", "gpudoc", "train", "--device", "cpu", *line(place, run, *arguments, **planted)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment.pop("RANK", None)
    return subprocess.Popen(
        command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def train(place, run, *arguments, **planted) -> tuple[int, str]:
    process = start(place, run, *arguments, **planted)
    out, err = process.communicate(timeout=200)
    return process.returncode, out + err


def weights(place, run, step=12):
    return load_file(place / run / "checkpoints" / f"step-{step}" / "model.safetensors")


def summary(place, run) -> dict:
    return json.loads((place / run / "summary.json").read_text())


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert (tensor - second[name]).abs().max() < 1e-6, name


def wait_for_step(place, run, step):
    until = time.monotonic() + 120
    path = place / run / "metrics.jsonl"
    while not (path.exists() and any(json.loads(row)["step"] >= step for row in path.read_text().splitlines()[:-1])):
        assert time.monotonic() < until, "the run does not come on"
        time.sleep(0.05)


def rank_of(process: subprocess.Popen, rank: int) -> psutil.Process:
    for child in psutil.Process(process.pid).children(recursive=True):
        if child.environ().get("RANK") == str(rank):
            return child
    raise AssertionError(f"no rank {rank}")


def test_two_ranks_then_one_train_as_one_process_does(place, alone, capfd):
    """43 samples in batches of 10: the last of an epoch holds 3, which two ranks share unevenly."""
    code, said = train(place, "ranks", "--gpus", "2", "--steps", "7")
    assert code == 0, said
    assert said.count("summary: ") == 1
    assert "2 processes x micro batch" in said
    assert train_one(place, "ranks", "--steps", "12") == 0
    assert "2 -> 1 processes: the order of samples stays the same" in "".join(capfd.readouterr())
    assert summary(place, "ranks")["resumed_from"] == "step-7"
    assert_same(alone, weights(place, "ranks"))


@pytest.mark.slow
def test_a_killed_rank_comes_back_and_the_run_ends_as_if_nothing_had_been(place, alone):
    process = start(place, "ranks", "--gpus", "2", "--resume", "never", sleep=0.05)
    wait_for_step(place, "ranks", 5)
    rank_of(process, 1).kill()
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, out + err
    assert summary(place, "ranks")["resumed_from"].startswith("step-")
    assert_same(alone, weights(place, "ranks"))


@pytest.mark.parametrize(
    "planted",
    [{"oom_at": 5}, pytest.param({"most": 4}, marks=pytest.mark.slow)],
    ids=["in a step", "while samples are read"],
)
def test_one_rank_out_of_memory_shrinks_all_and_changes_nothing(place, alone, planted):
    code, said = train(place, "ranks", "--gpus", "2", **planted)
    assert code == 0, said
    assert "out of memory" in said
    rescues = summary(place, "ranks")["rescues"]
    assert [(row["rescue"]["from_batch"], row["rescue"]["to_batch"]) for row in rescues] == [(5, 2)]
    assert_same(alone, weights(place, "ranks"))


@pytest.mark.slow
def test_a_stop_signal_is_agreed_on_saved_and_gone_on_from(place, alone):
    process = start(place, "ranks", "--gpus", "2", "--num-workers", "1", sleep=0.05)
    wait_for_step(place, "ranks", 3)
    rank_of(process, 1).send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 75, out + err
    stopped = summary(place, "ranks")["steps"]
    assert 3 <= stopped < 12
    code, said = train(place, "ranks", "--gpus", "2", sleep=0.05)
    assert code == 0, said
    assert summary(place, "ranks")["resumed_from"] == f"step-{stopped}"
    assert_same(alone, weights(place, "ranks"))


@pytest.mark.slow
def test_an_error_on_one_rank_ends_all_and_is_said_once(place):
    code, said = train(place, "ranks", "--gpus", "2", raise_at=17)
    assert code == 1, said
    assert said.count("\ngpudoc: ") == 1, said
    assert "sample 17 is broken" in said
    assert "Traceback" not in said
    assert "another rank has ended" not in said


@pytest.mark.slow
def test_a_mistake_is_said_once_with_its_code(place):
    code, said = train(place, "ranks", "--gpus", "2", "--set", "global_batch=1000")
    assert code == 2
    assert said.count("global_batch 1000 is more than the 43 samples") == 1


def test_the_sbatch_file_holds_the_command(place, monkeypatch, capfd):
    def train(*arguments):
        """Nothing is trained, so this needs no process."""
        monkeypatch.setattr(sys, "argv", ["gpudoc", "train", *line(place, "run", *arguments)])
        return train_here(place, *sys.argv[2:]), "".join(capfd.readouterr())

    code, said = train("--gpus", "2", "--steps", "5", "--slurm", str(place / "job.sh"))
    assert code == 0, said
    assert "sbatch" in said
    text = (place / "job.sh").read_text()
    assert "--steps 5" in text
    assert "--gpus 2" in text
    assert "--slurm" not in text
    assert not (place / "run").exists()
    code, said = train("--slurm", str(place / "none" / "job.sh"))
    assert code == 2
    assert "cannot be written" in said


def test_a_rank_trains_itself_whatever_gpus_says(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert elsewhere(TrainRequest(device="cpu"), gpus="2", slurm=None) is None
    assert is_follower()


def test_one_process_on_a_cpu_needs_no_launcher(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert elsewhere(TrainRequest(device="cpu"), gpus=None, slurm=None) is None
    assert not is_follower()


def _raise(problem: Exception) -> int:
    raise problem


@pytest.mark.parametrize(
    ("problem", "status", "written"),
    [
        (GpudocError("x"), 0, "2"),
        (GpudocError("x", exit_code=ExitCode.BAD_ANSWER), 0, "1"),
        (PeerLostError("x"), 1, None),
        (abandoned(), 1, None),
        (RuntimeError("[../gloo/transport/tcp/pair.cc:1] Connection closed by peer"), 1, None),
        (ZeroDivisionError("x"), 0, "70"),
    ],
)
def test_only_a_rank_that_should_come_back_looks_like_a_crash(tmp_path, monkeypatch, problem, status, written):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv(launch.EXIT_FILE, str(tmp_path / "exit"))
    with pytest.raises(GpudocError) as caught:
        as_rank(lambda: _raise(problem))
    assert caught.value.exit_code == status
    assert (pathlib.Path(tmp_path / "exit").read_text() if written else None) == written


def test_a_rank_whose_gpu_is_lost_ends_on_purpose_and_at_once(tmp_path, monkeypatch):
    """Cleaning up would abort it, which looks like a crash and starts all ranks again."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv(launch.EXIT_FILE, str(tmp_path / "exit"))
    with pytest.raises(KernelError) as caught:
        as_rank(lambda: _raise(KernelError("x", hint="y", exit_code=ExitCode.BAD_ANSWER)))
    assert (caught.value.exit_code, caught.value.is_abrupt, caught.value.hint) == (0, True, "y")
    assert (tmp_path / "exit").read_text() == "1"


def test_a_rank_that_finished_says_nothing_to_the_launcher(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv(launch.EXIT_FILE, str(tmp_path / "exit"))
    assert as_rank(lambda: 0) == 0
    assert not (tmp_path / "exit").exists()
    assert as_rank(lambda: 75) == 0
    assert (tmp_path / "exit").read_text() == "75"
