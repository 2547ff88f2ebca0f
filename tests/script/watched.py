"""A script that runs as its users run it, watched from outside; what it printed and what was seen."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass

from gpudoc.script.hook import environment, read
from gpudoc.script.messages import HookOrder
from tests.script.scripts import EAGER

LOOK = HookOrder(purpose="look")
HEAD = f"""{EAGER}
import sys, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

class Rows(Dataset):
    def __init__(self, count=24): self.count = count
    def __len__(self): return self.count
    def __getitem__(self, i): return torch.full((4,), float(i)), torch.tensor([i % 3.0])

torch.manual_seed(7)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)

def step(x, y):
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    return loss.item()
"""


@dataclass(frozen=True)
class Watched:
    """A script that has ended: its exit code, what it printed, and what each of its processes told."""

    code: int
    out: str
    err: str
    seen: tuple

    @property
    def loaders(self):
        return {loader.number: loader for loader in self.seen[0].loaders}


def bare_environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("GPUDOC_SCRIPT")}


def save(folder, text, name="train.py", *, head=True):
    path = folder / name
    path.write_text((HEAD if head else "") + textwrap.dedent(text))
    return path


def bare(command, **options):
    """The same command without anyone watching."""
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, env=bare_environment(), **options
    )


def watch(folder, command, order=LOOK, **variables):
    """Run a command to its end with the inside in it."""
    told, env = told_to(folder, order, variables)
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, env=env, cwd=folder
    )
    return Watched(done.returncode, done.stdout, done.stderr, read(told))


def watch_until(folder, text, order, enough: Callable[[tuple], bool], patience_s=120):
    """Run a script behind HEAD until what it told is enough, and kill it then; what it told."""
    told, env = told_to(folder, order, {})
    script = [sys.executable, str(save(folder, text))]
    until = time.monotonic() + patience_s
    with subprocess.Popen(script, stdout=subprocess.DEVNULL, env=env, cwd=folder) as process:
        try:
            while not enough(seen := read(told)) and process.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
        finally:
            process.kill()
    return seen


def told_to(folder, order, variables):
    """A new folder for what a script tells, and the environment that it is started with."""
    told = folder / f"told-{len(list(folder.glob('told-*')))}"
    told.mkdir()
    return told, {**environment(told, order, bare_environment()), **variables}


def watch_text(folder, text, order=LOOK, *, head=True, **variables):
    """Run a script of this text, behind HEAD."""
    return watch(folder, [sys.executable, save(folder, text, head=head)], order, **variables)
