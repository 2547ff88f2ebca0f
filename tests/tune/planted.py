"""A small workload on disk with a fault planted on request; used by the tests and by campaigns/tune_faults.py."""

from __future__ import annotations

from pathlib import Path

import yaml

MODULE = '''
import ctypes, os, signal, time
import torch
from torch import nn

if os.environ.get("PLANT_SLOW_IMPORT"):
    time.sleep(float(os.environ["PLANT_SLOW_IMPORT"]))
if os.environ.get("PLANT_AT_IMPORT"):
    exec(os.environ["PLANT_AT_IMPORT"])


class Data(torch.utils.data.Dataset):
    """`count` samples of `width` numbers; with `lengths`, sample i is a sequence and one of them is far longer."""

    def __init__(self, count=512, width=256, lengths=False, die_at=None, sleep=0.0):
        self.count, self.width, self.lengths, self.die_at, self.sleep = count, width, lengths, die_at, sleep

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if not 0 <= index < self.count:
            raise IndexError(index)
        if self.die_at is not None and torch.utils.data.get_worker_info() is not None and index >= self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.sleep)
        length = 1 if not self.lengths else (64 if index == self.count // 3 else 1 + index % 4)
        x = torch.full((length, self.width), float(index % 7)) if self.lengths else torch.full((self.width,), 0.1)
        return x, torch.tensor(index % 10)


def pad(samples):
    longest = max(x.shape[0] for x, _ in samples)
    padded = [torch.nn.functional.pad(x, (0, 0, 0, longest - x.shape[0])) for x, _ in samples]
    return torch.stack(padded), torch.stack([y for _, y in samples])


def rank():
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0


class Hang(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(3600)
        return grad


class Wide(nn.Module):
    """A block that keeps `spread` x `hidden` numbers per sample for its backward, with few weights."""

    def __init__(self, hidden, spread):
        super().__init__()
        self.inner, self.spread = nn.Linear(hidden, hidden), spread

    def forward(self, x):
        return x + self.inner(x).unsqueeze(1).expand(-1, self.spread, -1).tanh().mean(1)


class Net(nn.Module):
    def __init__(self, width=256, hidden=256, fault=None, at=1, faults=None, depth=0, spread=1024):
        super().__init__()
        blocks = [nn.Sequential(*(Wide(hidden, spread) for _ in range(depth)))] if depth else []
        self.body = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), *blocks, nn.Linear(hidden, 10))
        self.fault, self.at, self.faults = fault, at, faults or {}
        self.kept = []

    def forward(self, x):
        self.plant(x)
        y = self.body(x)
        if y.dim() == 3:
            y = y.mean(1)
        return Hang.apply(y) if self.fault == "hang" and len(x) >= self.at else y

    def plant(self, x):
        batch = len(x)
        if str(batch) in self.faults:
            self.fault, self.at = self.faults[str(batch)], batch
        if self.fault == "dynamic":
            self.seen = float(x[x > 0.5].sum())
        if self.fault == "leak" and self.training:
            self.kept.append(torch.ones(1 << 18))
        if self.fault == "eval" and not self.training and batch >= self.at:
            torch.ones(1 << 40)
        if self.fault == "longest" and x.dim() == 3 and x.shape[1] == 64 and batch >= self.at:
            torch.ones(1 << 40)
        if self.fault == "rank 1" and batch >= self.at and self.training and rank() == 1:
            torch.ones(1 << 40)
        if self.fault == "rank 1 killed" and batch >= self.at and rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "partial" and self.training and batch == self.at:
            torch.ones(1 << 40)
        if batch < self.at or self.fault is None:
            return
        match self.fault:
            case "raise":
                raise ValueError(f"planted: batch {batch} is refused")
            case "sigkill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "sigbus":
                os.kill(os.getpid(), signal.SIGBUS)
            case "segfault":
                ctypes.string_at(0)
            case "int32":
                raise RuntimeError("Expected canUse32BitIndexMath(input) && canUse32BitIndexMath(output) to be true")
            case "orphan":
                if os.fork() == 0:
                    os.setsid()
                    time.sleep(3600)
            case "quadratic":
                (x @ x.T).exp().sum().backward() if x.requires_grad else (x @ x.T)
'''


def write_workload(
    folder: Path, *, fault: str | None = None, at: int = 1, data: dict | None = None, net: dict | None = None, **train
) -> Path:
    """cfg.yaml and its module in `folder`; returns the path of the config."""
    (folder / "planted_work.py").write_text(MODULE)
    width = {"width": (net or {}).get("width", 256)}
    config = {
        "model": {"target": "planted_work:Net", "args": {"fault": fault, "at": at, **(net or {})}},
        "data": {"target": "planted_work:Data", "args": {**width, **(data or {})}},
        "loss": {"target": "torch.nn:CrossEntropyLoss"},
        "optimizer": {"target": "torch.optim:AdamW", "args": {"lr": 1e-3}},
        "train": {"reference_batch": 8, **train},
    }
    if (data or {}).get("lengths"):
        config["data"]["collate"] = "planted_work:pad"
    path = folder / "cfg.yaml"
    path.write_text(yaml.safe_dump(config))
    return path
