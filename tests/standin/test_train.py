"""`gpudoc train` on PyTorch's own CUDA build: one GPU, several, and what goes wrong on them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpudoc.cli.app import run
from tests.standin.gpus import PATIENCE_S, StandIn
from tests.train.support import metrics, summary

pytestmark = pytest.mark.standin

MODULE = '''
import os
import signal
import time

import torch
from torch import nn

class Points(torch.utils.data.Dataset):
    """Points of a plane and four classes of them; the sample `bad_label` is of a fifth, each takes `pause` seconds."""
    def __init__(self, count=96, bad_label=None, pause=0.0):
        self.x = torch.randn(count, 8, generator=torch.Generator().manual_seed(1))
        self.y = (self.x.sum(1) > 0).long() + 2 * (self.x[:, 0] > 0).long()
        if bad_label is not None:
            self.y[bad_label] = 4
        self.pause = pause
    def __len__(self):
        return len(self.x)
    def __getitem__(self, index):
        time.sleep(self.pause)
        return self.x[index], self.y[index]

class Net(nn.Module):
    """`on_default` puts one number where code that says "cuda" puts it; forward number `killed` is the last of rank 1,
    in the first `attempts` starts."""
    def __init__(self, hidden=16, dropout=0.0, on_default=False, killed=0, attempts=1):
        super().__init__()
        doomed = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) < attempts and os.environ.get("RANK") == "1"
        self.left = killed if doomed else 0
        self.body = nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 4))
        self.on_default = on_default
    def forward(self, x):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.on_default:
            torch.zeros(1, device="cuda")
        return self.body(x)
'''


def place(folder: Path, *, model: dict | None = None, data: dict | None = None, **train) -> None:
    """A config of the small net, and the module that it names, in `folder`."""
    (folder / "netmodule.py").write_text(MODULE)
    config = {
        "model": {"target": "netmodule:Net", "args": model or {}},
        "data": {"target": "netmodule:Points", "args": data or {}},
        "loss": {"target": "torch.nn:CrossEntropyLoss"},
        "optimizer": {"target": "torch.optim:AdamW", "args": {"lr": 0.01}},
        "train": {"global_batch": 12, "precision": "fp32", "steps": 12, "log_every": 1, **train},
    }
    (folder / "cfg.yaml").write_text(json.dumps(config))


def line(folder: Path, name: str, *arguments: object) -> list[str]:
    found = ["train", "--model", "cfg.yaml", "--profile", "off", "--plain", "--run-dir", str(folder / name)]
    return [*found, *map(str, arguments)]


def here(folder: Path, monkeypatch, name: str, *arguments: object) -> int:
    """Train in this process, which has one GPU."""
    monkeypatch.chdir(folder)
    return run(line(folder, name, *arguments))


def losses(run_dir: Path) -> list[float]:
    return [row["loss"] for row in metrics(run_dir) if "loss" in row and "lr" in row]


def gpudoc(gpus: StandIn, name: str, *arguments: object) -> tuple[int, str, set[tuple[int, int]]]:
    """The command's status, what it said, and every (process, GPU) that had a context meanwhile."""
    before = len(gpus.contexts())
    done = gpus.forked(*line(gpus.home, name, *arguments))
    return done.returncode, done.stdout + done.stderr, {(pid, gpu) for pid, gpu, _ in gpus.contexts()[before:]}


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> list[float]:
    """The losses of the small net on the CPU."""
    folder = tmp_path_factory.mktemp("alone")
    place(folder)
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert run(line(folder, "run", "--device", "cpu")) == 0
    finally:
        os.chdir(before)
    return losses(folder / "run")


def test_every_gpu_is_taken_by_one_process_and_none_by_the_launcher(standin, tmp_path, alone):
    place(tmp_path)
    code, said, seen = gpudoc(standin(gpus=2, memory="4G"), "run")
    assert code == 0, said
    assert sorted(gpu for _, gpu in seen) == [0, 1], said
    assert len({pid for pid, _ in seen}) == 2
    assert "2 processes x micro batch" in said
    assert losses(tmp_path / "run") == pytest.approx(alone, abs=1e-5)


def test_torchrun_gives_every_rank_its_own_gpu(standin, tmp_path, alone):
    place(tmp_path)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--local-addr=127.0.0.1"]
    gpus = standin(gpus=2, memory="4G")
    done = gpus.run(*torchrun, "-m", "gpudoc", *line(tmp_path, "run", "--no-preflight"))
    assert done.returncode == 0, done.stderr
    assert sorted(gpu for _, gpu, _ in gpus.contexts()) == [0, 1], done.stderr
    assert losses(tmp_path / "run") == pytest.approx(alone, abs=1e-5)


def test_two_nodes_under_slurm_meet_and_take_a_gpu_each(standin, tmp_path, alone):
    """Two launchers stand for two nodes, each of which sees one GPU."""
    place(tmp_path)
    gpus = standin(gpus=2, memory="2G")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    step = {"SLURM_STEP_NUM_NODES": "2", "SLURM_JOB_ID": "5", "GPUDOC_EXIT_FILE": str(tmp_path / "exit")}
    step |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-m", "gpudoc", *line(tmp_path, "run", "--no-preflight")]
    nodes = [
        subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**gpus.environment, **step, "CUDA_VISIBLE_DEVICES": str(node), "SLURM_PROCID": str(node)},
        )
        for node in range(2)
    ]
    try:
        assert [node.wait(PATIENCE_S) for node in nodes] == [0, 0]
    finally:
        for node in nodes:
            node.kill()
    assert losses(tmp_path / "run") == pytest.approx(alone, abs=1e-5)
    assert summary(tmp_path / "run")["world"] == 2


def test_each_task_of_slurm_trains_on_the_one_gpu_that_it_sees(standin, tmp_path, alone):
    """As `srun --gpus-per-task=1` starts them: every process sees one GPU, and calls it 0."""
    place(tmp_path)
    gpus = standin(gpus=2, memory="2G")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    step = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-m", "gpudoc", *line(tmp_path, "run")]
    tasks = [
        subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**gpus.environment, **step, "RANK": task, "LOCAL_RANK": task, "CUDA_VISIBLE_DEVICES": task},
        )
        for task in "01"
    ]
    try:
        assert [task.wait(PATIENCE_S) for task in tasks] == [0, 0]
    finally:
        for task in tasks:
            task.kill()
    assert sorted(gpu for _, gpu, _ in gpus.contexts()) == [0, 1]
    assert losses(tmp_path / "run") == pytest.approx(alone, abs=1e-5)


@contextmanager
def filled(gpus: StandIn, gpu: int, size: int) -> Iterator[int]:
    """Another process that holds `size` bytes of one GPU; its pid."""
    code = f"import torch; kept = torch.empty({size}, dtype=torch.uint8, device='cuda:{gpu}'); print(1, flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}; input()"],
        env=gpus.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_a_full_gpu_is_told_with_its_holder_and_another_ones_fill_is_nothing(standin, tmp_path):
    place(tmp_path)
    gpus = standin(gpus=2, memory="2G")
    with filled(gpus, 1, 1148 << 20) as holder:
        refused = gpus.forked(*line(tmp_path, "full", "--device", "cuda:1"))
        code, said, seen = gpudoc(gpus, "other", "--device", "cuda:0", "--steps", 2)
    assert refused.returncode == 1, refused.stderr
    assert "cuda:1 has too little free memory to begin: 450 MiB of 2 GiB is free; " in refused.stderr
    assert f"(pid {holder}, " in refused.stderr
    assert "holds 1.56 GiB; weights" in refused.stderr
    assert "weights, gradients and optimizer state need 3.31 KiB" in refused.stderr
    assert "--device cuda:0, where 2 GiB is free" in refused.stderr
    assert code == 0, said
    assert {gpu for pid, gpu in seen if pid != holder} == {0}


def test_memory_that_runs_out_before_the_first_step_is_told_with_what_is_needed(standin, tmp_path):
    place(tmp_path, model={"hidden": 3_000_000})
    gpus = standin(gpus=2, memory="3G")
    with filled(gpus, 1, (3 << 30) - (1000 << 20)) as holder:
        code, said, _ = gpudoc(gpus, "run")
    assert code == 1, said
    assert "cuda:1 has too little free memory to begin" in said
    assert f"pid {holder})" in said
    assert "need 595 MiB" in said
    assert "fault of gpudoc" not in said
    assert said.count("gpudoc: ") == 1


def test_code_that_says_cuda_means_the_gpu_that_was_asked_for(standin, tmp_path):
    place(tmp_path, model={"on_default": True})
    code, said, seen = gpudoc(standin(gpus=2, memory="4G"), "run", "--device", "cuda:1", "--steps", 2)
    assert code == 0, said
    assert {gpu for _, gpu in seen} == {1}


def test_the_first_error_of_a_kernel_is_told_and_not_what_the_dead_gpu_says_after_it(standin, tmp_path):
    place(tmp_path, data={"bad_label": 5}, checkpoint_every=2)
    done = standin().forked(*line(tmp_path, "run", "--set", "seed=3"))
    assert done.returncode == 1, done.stderr
    told = next(row for row in done.stderr.splitlines() if row.startswith("gpudoc: "))
    assert "a kernel failed on the GPU by step" in told
    assert "device-side assert" in told
    assert "CUDA_LAUNCH_BLOCKING=1" in done.stderr
    assert "Traceback" not in done.stderr
    assert "terminate called" not in done.stderr


def test_more_processes_than_gpus_are_refused(standin, tmp_path):
    place(tmp_path)
    done = standin(gpus=2).forked(*line(tmp_path, "run", "--gpus", 3))
    assert done.returncode == 2
    assert "--gpus 3: this machine has 2 usable" in done.stderr


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_losses_are_the_cpus_in_every_precision(tmp_path, monkeypatch, alone, precision):
    place(tmp_path, precision=precision)
    assert here(tmp_path, monkeypatch, "run", "--device", "cuda") == 0
    rows = [row for row in metrics(tmp_path / "run") if "lr" in row]
    assert all((row["scale"] is not None) == (precision == "fp16") for row in rows)
    # bf16 keeps eight bits of a number, fp16 eleven
    bits = {"fp32": 20, "bf16": 8, "fp16": 11}[precision]
    assert losses(tmp_path / "run") == pytest.approx(alone, rel=2.0**-bits * 4)


def test_the_quickstart_learns_as_on_a_cpu(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    same = ["--model", "quickstart", "--profile", "off", "--plain", "--precision", "fp32", "--steps", "3"]
    same += [
        "--set",
        "log_every=1",
        "--set",
        "eval_every=1000",
        "--set",
        "global_batch=8",
        "--set",
        "checkpoint_every=0",
    ]
    for device in ("cpu", "cuda"):
        assert run(["train", *same, "--device", device, "--run-dir", device]) == 0
    assert losses(tmp_path / "cuda") == pytest.approx(losses(tmp_path / "cpu"), abs=2e-3)


def test_a_trace_of_some_steps_is_written(tmp_path, monkeypatch):
    place(tmp_path)
    assert here(tmp_path, monkeypatch, "run", "--device", "cuda", "--trace", 2) == 0
    assert "traceEvents" in json.loads((tmp_path / "run" / "trace.json").read_text())


def test_resume_is_exact_on_a_gpu(standin, tmp_path):
    place(tmp_path, model={"dropout": 0.3})
    done = standin().forked(
        *["train", "--model", "cfg.yaml", "--profile", "off", "--no-preflight", "--prove-resume", "--plain"]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exact: killed after step 5 and resumed" in done.stdout


def content(run_dir: Path, step: int) -> dict[str, str]:
    """What a checkpoint holds of weights and optimizer, by digest."""
    files = json.loads((run_dir / f"checkpoints/step-{step}/manifest.json").read_text())["files"]
    return {name: row["sha256"] for name, row in files.items() if name in ("model.safetensors", "optimizer.pt")}


FEW_RESTARTS = """
import sys
from gpudoc.cli.app import main
from gpudoc.train.start import launch
launch.MAX_RESTARTS = 1
sys.argv = {}
main()
"""


def test_a_killed_rank_takes_the_others_with_it_and_the_run_ends_as_if_it_had_lived(standin, tmp_path):
    """SIGKILL, once and then at every start: on the GPUs the others wait in NCCL for a rank that will not come."""
    train = ["--gpus", 2, "--no-preflight", "--set", "checkpoint_every=2"]
    place(tmp_path, model={"dropout": 0.3})
    whole = standin(gpus=2, memory="2G").forked(*line(tmp_path, "whole", *train))
    assert whole.returncode == 0, whole.stderr
    place(tmp_path, model={"dropout": 0.3, "killed": 6})
    once = standin(gpus=2, memory="2G")
    done = once.forked(*line(tmp_path, "once", *train))
    assert done.returncode == 0, done.stderr
    # from which step depends on the moment: what was on its way to the disk, and what the rank that lives still saves
    assert summary(tmp_path / "once")["resumed_from"] in ("step-2", "step-4", "step-5")
    assert content(tmp_path / "once", 12) == content(tmp_path / "whole", 12)
    # two ranks and two more, each on its own GPU; the first two are gone
    assert sorted(gpu for _, gpu, _ in once.contexts()) == [0, 0, 1, 1]
    assert once.holders() == []
    place(tmp_path, model={"dropout": 0.3, "killed": 2, "attempts": 99})
    always = standin(gpus=2, memory="2G")
    done = always.python(FEW_RESTARTS.format(["gpudoc", *line(tmp_path, "always", *train)]))
    assert done.returncode == 1, done.stderr
    assert "rank 1 ended by SIGKILL" in done.stderr
    assert "Traceback" not in done.stderr
    assert always.holders() == []


def test_a_run_goes_on_with_another_number_of_gpus(standin, tmp_path, alone):
    place(tmp_path)
    gpus = standin(gpus=4, memory="2G")
    for ranks, steps in ((4, 5), (1, 9), (2, 12)):
        arguments = ["--gpus", ranks, "--steps", steps, "--no-preflight"]
        done = gpus.forked(*line(tmp_path, "run", *arguments))
        assert done.returncode == 0, done.stderr
    assert "1 -> 2 processes: the order of samples stays the same" in done.stderr
    assert losses(tmp_path / "run") == pytest.approx(alone, abs=1e-5)


def test_loader_workers_make_no_context(standin, tmp_path):
    place(tmp_path)
    code, said, seen = gpudoc(standin(), "run", "--num-workers", 2, "--no-preflight")
    assert code == 0, said
    assert len(seen) == 1


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_stopped_run_says_75_and_goes_on(standin, tmp_path, ranks, alone):
    place(tmp_path, data={"pause": 0.02})
    gpus = standin(gpus=2, memory="2G")
    arguments = line(tmp_path, "run", "--gpus", ranks, "--no-preflight")
    process = subprocess.Popen(
        [sys.executable, "-m", "gpudoc", *arguments], cwd=tmp_path, env=gpus.environment, stderr=subprocess.DEVNULL
    )
    path = tmp_path / "run" / "metrics.jsonl"
    until = time.monotonic() + PATIENCE_S
    while not path.exists() or len(path.read_text().splitlines()) < 2:
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 75
    assert 0 < summary(tmp_path / "run")["steps"] < 12
    done = gpus.forked(*arguments)
    assert done.returncode == 0, done.stderr
    assert losses(tmp_path / "run") == pytest.approx(alone, abs=1e-5)


def test_a_model_that_fills_the_gpus_is_spread_over_them(standin, tmp_path):
    place(tmp_path, model={"hidden": 2_000_000}, steps=1)
    done = standin(gpus=2, memory="460M", context_bytes="20M", nccl_bytes="5M").forked(
        *line(tmp_path, "run", "--no-preflight")
    )
    assert done.returncode == 0, done.stderr
    assert "they are spread over 2 processes (FSDP2)" in done.stderr


def test_waiting_for_gradients_is_told_while_they_are_exchanged_inside_backward(standin, tmp_path):
    """From step 51 on DDP reduces in backward; links that are this slow are waited for."""
    place(tmp_path, model={"hidden": 20_000}, steps=54)
    done = standin(gpus=2, memory="2G", peer_gbps=1).forked(*line(tmp_path, "run", "--no-preflight"))
    assert done.returncode == 0, done.stderr
    rows = [row for row in metrics(tmp_path / "run") if "lr" in row]
    for row in (rows[10], rows[-1]):
        # 260,004 numbers of four bytes, twice, at 1 GB a second
        assert row["seconds"]["communicate"] > 0.001, row
