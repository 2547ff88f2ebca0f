"""Small real workloads on disk, and the command run as a person runs it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]

TINY = '''
import random
import time

import numpy
import torch
from torch import nn

class Points(torch.utils.data.Dataset):
    """Noisy points of a plane; `draw` names the generators that each sample draws from, `sleep` seconds are lost."""

    def __init__(self, count=96, draw="", sleep=0.0, bad_from=None, die_at=None, raise_at=None, width=8):
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(count, width, generator=generator)
        self.targets = self.inputs.sum(1, keepdim=True) / 3
        self.draw, self.sleep = draw.split(), sleep
        self.bad_from, self.die_at, self.raise_at = bad_from, die_at, raise_at

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        if self.sleep:
            time.sleep(self.sleep)
        if self.die_at == index:
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)
        if self.raise_at == index:
            raise KeyError(f"sample {index} is broken")
        x = self.inputs[index]
        if "python" in self.draw:
            x = x + random.random()
        if "numpy" in self.draw:
            x = x + float(numpy.random.rand())
        if "torch" in self.draw:
            x = x + torch.rand(())
        if self.bad_from is not None and index >= self.bad_from:
            x = x * float("nan")
        return x, self.targets[index]

class Slow(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def forward(self, x):
        if self.seconds:
            time.sleep(self.seconds)
        return x

def build_model(width=8, hidden=16, dropout=0.0, norm=False, sleep=0.0):
    parts = [nn.Linear(width, hidden), nn.ReLU(), Slow(sleep)]
    if norm:
        parts.append(nn.BatchNorm1d(hidden))
    if dropout:
        parts.append(nn.Dropout(dropout))
    return nn.Sequential(*parts, nn.Linear(hidden, 1))
'''


def write_workload(
    folder: pathlib.Path,
    *,
    model: dict | None = None,
    data: dict | None = None,
    evaluated: bool = False,
    schedule: dict | None = None,
    **train,
) -> pathlib.Path:
    """A cfg.yaml with the module beside it that it names; keywords go into the sections' args."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tiny_workload.py").write_text(TINY)
    section = {"target": "tiny_workload:Points", "args": data or {}}
    if evaluated:
        section["eval"] = {"target": "tiny_workload:Points", "args": {"count": 24}}
    config = {
        "model": {"target": "tiny_workload:build_model", "args": model or {}},
        "data": section,
        "loss": {"target": "torch.nn:MSELoss"},
        "optimizer": {"target": "torch.optim:AdamW", "args": {"lr": 0.01}},
        "train": {"global_batch": 12, "precision": "fp32", **train},
    }
    if schedule:
        config["schedule"] = schedule
    path = folder / "cfg.yaml"
    path.write_text(json.dumps(config))
    return path


def environment() -> dict[str, str]:
    found = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    return {key: value for key, value in found.items() if not key.startswith("SLURM")}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "gpudoc", "train", *map(str, arguments)]


def train(cwd: pathlib.Path, *arguments: object, **options) -> subprocess.CompletedProcess[str]:
    """`gpudoc train --device cpu ...` in a separate process."""
    line = command("--device", "cpu", *arguments)
    return subprocess.run(line, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=280, **options)


def train_here(cwd: pathlib.Path, *arguments: object) -> int:
    """The same in this process, for what neither signals nor limits touch; the output goes where pytest captures it."""
    from gpudoc.cli.app import run

    before = pathlib.Path.cwd()
    os.chdir(cwd)
    try:
        with own_modules(cwd):
            return run(["train", "--device", "cpu", *map(str, arguments)])
    finally:
        os.chdir(before)
        forget_limit()


@contextlib.contextmanager
def as_in_a_process() -> Iterator[None]:
    """Inside, this process computes as those that `train` starts, bit for bit: with one thread. A run that asks for
    deterministic kernels leaves none behind."""
    import torch

    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(strict)


@contextlib.contextmanager
def own_modules(folder: pathlib.Path) -> Iterator[None]:
    """Modules of `folder` are imported from there, and then forgotten like the folder: other tests use their names."""
    others = {path.stem: sys.modules.pop(path.stem) for path in folder.glob("*.py") if path.stem in sys.modules}
    paths, before = list(sys.path), set(sys.modules)
    try:
        yield
    finally:
        sys.path[:] = paths
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(f"{folder}{os.sep}"):
                del sys.modules[name]
        sys.modules.update(others)


def forget_limit() -> None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def start(cwd: pathlib.Path, *arguments: object, **options) -> subprocess.Popen[str]:
    """The same, running."""
    line = command("--device", "cpu", *arguments)
    return subprocess.Popen(
        line, cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def summary(run: pathlib.Path) -> dict:
    return json.loads((run / "summary.json").read_text())


def metrics(run: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
