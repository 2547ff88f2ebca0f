"""Compares the loader that `gpudoc tune -- COMMAND` chooses with the best of a grid, on data sets that wait.

python benchmarks/script_loader.py [--sets 3ms,skewed,...] [--rounds 2] [--duel 5] [--budget 300] [--record FILE]
python benchmarks/script_loader.py --sets mlp-256,... --loops 1,2 --workers 0,2,4,8,16 --prefetch 2 --rounds 1 --duel 3

Each data set is a separate script that knows nothing of gpudoc; the slow parts wait instead of computing, so that
many workers help on few CPUs. Truth: every cell of workers x prefetch is a launch of the script; all take turns in a
shuffled order, a cell's figure is the fastest of its launches, and the better half goes through all rounds. The best of
so many is partly the luckiest: it and the choice then take turns again, and the medians of these launches are compared.
The search runs first and sees none of it. With `--loops`, it runs once beside each such number of busy loops, and its
choice there, with how threads wait, is compared with the best cell after the loops have ended. Sets named `mlp` compute
their step with OpenMP's threads, which spin while a loop has the CPU of the thread they wait for.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TypeAlias

import torch

import gpudoc
from gpudoc.facts.host import cpus_usable
from gpudoc.profile.model import Loader
from gpudoc.script.command import Command
from gpudoc.script.search import run
from gpudoc.script.trial import Launches
from gpudoc.stats import median
from gpudoc.tune.options import SearchOptions
from gpudoc.tune.trial.messages import TrialRequest, Variant

Side: TypeAlias = tuple[Loader, Variant]
# a line of the table, and whether the choice is right
Row: TypeAlias = tuple[str, bool]
ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """
import random, time, torch
from torch.utils.data import DataLoader, Dataset

class Waits(Dataset):
    def __len__(self):
        return 20000
    def __getitem__(self, index):
        time.sleep({wait})
        return torch.zeros({width}), torch.zeros(1)

model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
loader = DataLoader(Waits(), batch_size={batch}, shuffle=True)
for epoch in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        time.sleep({step})
"""
MLP = "torch.nn.Sequential(torch.nn.Linear({width}, {hidden}), torch.nn.ReLU(), torch.nn.Linear({hidden}, 1))"
# name -> seconds of a sample (may draw), batch, seconds of a step without its model's, numbers in one, hidden units
SETS: dict[str, tuple[str, int, float, int, int]] = {
    "3ms": ("0.003", 16, 0.020, 16, 0),
    "10ms": ("0.010", 8, 0.030, 16, 0),
    "20ms": ("0.020", 8, 0.040, 16, 0),
    "short-step": ("0.004", 16, 0.008, 16, 0),
    "long-step": ("0.005", 16, 0.100, 16, 0),
    "barely": ("0.001", 16, 0.060, 16, 0),
    "small-batch": ("0.020", 2, 0.010, 16, 0),
    "skewed": ("0.002 if index % 16 else 0.060", 16, 0.030, 16, 0),
    "exponential": ("random.expovariate(200)", 16, 0.025, 16, 0),
    "wide": ("0.004", 16, 0.030, 65536, 0),
    "mlp-256": ("0.010", 32, 0.0, 512, 256),
    "mlp-1024": ("0.004", 64, 0.0, 512, 1024),
    "mlp-2048": ("0.010", 32, 0.0, 1024, 2048),
    "mlp-4096": ("0.004", 128, 0.0, 512, 4096),
    "mlp-skewed": ("0.002 if index % 16 else 0.060", 32, 0.0, 512, 512),
}
WORKERS, PREFETCH = "0,1,2,3,4,6,8,12", "2,4"
COLUMNS = ("data set", "loops", "chosen (said)", "its step", "best cell", "its step", "share of best")
COLUMNS += ("over no workers", "launches", "search")
# the share of the best cell's pace from which a choice made beside other work counts as right
RIGHT_SHARE = 0.8


@dataclass(frozen=True)
class Choice:
    """What a search chose: its loader and how threads wait; `said` is its answer, `is_made` whether it chose at all."""

    feed: Loader
    variant: Variant
    said: str
    is_made: bool
    key: str
    launches: int
    seconds: float


def cells(workers: str, prefetch: str) -> list[Loader]:
    """The grid: no workers once, each other count with each prefetch factor."""
    factors = [int(word) for word in prefetch.split(",")]
    counts = [(int(n), p) for n in workers.split(",") for p in factors if int(n) or p == factors[0]]
    return [Loader(num_workers=n, prefetch_factor=p, persistent_workers=n > 0) for n, p in counts]


def step_s(launches: Launches, side: Side, turn: int) -> float:
    """Seconds of a step in one launch; infinite if it failed."""
    feed, variant = side
    request = TrialRequest(
        kind="loader", batches=(), feed=feed, variant=variant, steps=24, seconds_per_batch=3.0, repeat=turn
    )
    trial = launches.run(request, patience_s=300)
    return trial.measured.get("mean_step_s", float("inf")) if trial.fits else float("inf")


def grid(launches: Launches, settings: list[Loader], rounds: int) -> Loader:
    """The cell with the fastest launch."""
    best = dict.fromkeys(settings, float("inf"))
    for turn in range(rounds):
        random.Random(turn).shuffle(settings)
        for feed in settings:
            best[feed] = min(best[feed], step_s(launches, (feed, Variant()), turn))
        settings = sorted(settings, key=lambda feed: best[feed])[: max(4, len(settings) // 2)]
    return min(best, key=lambda feed: best[feed])


def duel(launches: Launches, sides: Sequence[Side], times: int) -> list[float]:
    """Median seconds of a step of each, in launches that take turns; a setting that is named twice runs once."""
    seen: dict[Side, list[float]] = {side: [] for side in sides}
    for turn in range(times):
        for side in sorted(seen, key=lambda side: side[0].num_workers, reverse=turn % 2 == 1):
            seen[side].append(step_s(launches, side, 100 + turn))
    return [median(seen[side]) for side in sides]


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    """This many busy loops that are nobody's children: the search runs in this process, and counts its children."""
    line = [sys.executable, "-c", "while True: pass"]
    shell = ["sh", "-c", f"{shlex.join(line)} >/dev/null 2>&1 & echo $!"]
    pids = [int(subprocess.run(shell, capture_output=True, text=True, check=True).stdout) for _ in range(loops)]
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def search(words: tuple[str, ...], budget_s: int, loops: int) -> Choice:
    """The choice of a fresh search beside this many busy loops."""
    asked = SearchOptions(command=words, only="loader", budget=f"{budget_s}s", fresh=True, in_place=True)
    with busy(loops):
        found = run(asked)
    training, feed = found.look.training, found.findings.feed
    assert training is not None
    if feed is not None:
        # the choice as a cell of the grid, without the settings that no cell varies
        feed = Loader(
            num_workers=feed.num_workers, prefetch_factor=feed.prefetch_factor, persistent_workers=feed.num_workers > 0
        )
    return Choice(
        feed=feed or Loader(), variant=found.findings.variant, said=found.findings.verdict.kind,
        is_made=feed is not None, key=training.key, launches=found.launches, seconds=found.seconds,
    )  # fmt: skip


def case(name: str, options: argparse.Namespace) -> Iterator[Row]:
    """One data set, searched once for each number of loops."""
    wait, batch, step, width, hidden = SETS[name]
    model = MLP.format(width=width, hidden=hidden) if hidden else f"torch.nn.Linear({width}, 1)"
    text = SCRIPT.format(wait=wait, batch=batch, step=step, width=width, model=model)
    Path("train.py").write_text(textwrap.dedent(text))
    words = (sys.executable, "train.py")
    choices = {loops: search(words, options.budget, int(loops)) for loops in options.loops.split(",")}
    with tempfile.TemporaryDirectory() as scratch:
        key = next(iter(choices.values())).key
        launches = Launches(command=Command(words), scratch=Path(scratch), isolated=False, lever="loader", keys=(key,))
        best = grid(launches, cells(options.workers, options.prefetch), options.rounds)
        sides: list[Side] = [(choice.feed, choice.variant) for choice in choices.values()]
        *chosen_s, best_s, own_s = duel(launches, [*sides, (best, Variant()), (Loader(), Variant())], options.duel)
    for (loops, choice), choice_s in zip(choices.items(), chosen_s, strict=True):
        waits = ", threads sleep" if choice.variant != Variant() else ""
        text = (
            f"| {name} | {loops} | {choice.feed.num_workers} x {choice.feed.prefetch_factor}{waits} ({choice.said}) | "
            f"{1e3 * choice_s:.1f} ms | {best.num_workers} x {best.prefetch_factor} | {1e3 * best_s:.1f} ms | "
            f"{best_s / choice_s:.1%} | {own_s / choice_s:.2f} | {choice.launches} | {choice.seconds:.0f} s |"
        )
        yield text, not choice.is_made or best_s / choice_s >= RIGHT_SHARE


def main() -> None:
    """Print the table, and write it if a record was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(name for name in SETS if not name.startswith("mlp")))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--duel", type=int, default=5, help="launches of each setting that is compared at the end")
    parser.add_argument("--budget", type=int, default=300, help="seconds for each search")
    parser.add_argument("--loops", default="0", help="busy loops beside a search, one search for each number")
    parser.add_argument("--workers", default=WORKERS)
    parser.add_argument("--prefetch", default=PREFETCH)
    parser.add_argument("--record", type=Path, default=None)
    options = parser.parse_args()
    named = ("loops", "workers", "prefetch", "rounds", "duel", "budget")
    numbers = " ".join(f"--{name} {getattr(options, name)}" for name in named)
    called = f"python benchmarks/script_loader.py {numbers}"
    versions = f"gpudoc {gpudoc.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    lines = [
        f"# The loader of a script beside a grid, {date.today().isoformat()}",
        "",
        f"{versions}, {cpus_usable():g} CPUs, load {os.getloadavg()[0]:.1f} at the start. `{called}`",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|" + "---|" * len(COLUMNS),
    ]
    is_right: list[bool] = []
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        os.environ["GPUDOC_PROFILE_DIR"] = str(Path(place) / "profiles")
        for name in options.sets.split(","):
            for line, right in case(name, options):
                lines.append(line)
                is_right.append(right)
                print(line, flush=True)
        os.chdir(ROOT)
    right = (
        f"at {RIGHT_SHARE:.0%} of the best cell or more, or no loader was chosen: {sum(is_right)} of {len(is_right)}"
    )
    text = "\n".join([*lines, "", right]) + "\n"
    if options.record:
        options.record.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
