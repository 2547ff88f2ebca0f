"""The loader that `gpudoc tune -- COMMAND` chooses, beside the best of a grid, on ten data sets that wait.

python benchmarks/script_loader.py [--sets 3ms,skewed,...] [--rounds 2] [--duel 5] [--budget 300] [--record FILE]

Each data set is a script of its own that knows nothing of gpudoc; what takes time waits instead of computing, so that
many workers help on few CPUs. Truth: every cell of workers x prefetch is a launch of the script; all take turns in a
shuffled order, a cell's figure is the fastest of its launches, and the better half goes through all rounds. The best of
so many is partly the luckiest: it and the choice then take turns anew, and the medians of these launches are compared.
The search runs first and sees none of it.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import torch

import gpudoc
from gpudoc.facts.host import cpus_usable
from gpudoc.profile.model import Loader
from gpudoc.script.command import Command
from gpudoc.script.search import run
from gpudoc.script.trial import Launches
from gpudoc.stats import median
from gpudoc.tune.options import SearchOptions
from gpudoc.tune.trial.messages import Request

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

model = torch.nn.Linear({width}, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
loader = DataLoader(Waits(), batch_size={batch}, shuffle=True)
for epoch in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        time.sleep({step})
"""
# name -> seconds of a sample (may draw), batch, seconds of a step, numbers in a sample
SETS = {
    "3ms": ("0.003", 16, 0.020, 16),
    "10ms": ("0.010", 8, 0.030, 16),
    "20ms": ("0.020", 8, 0.040, 16),
    "short-step": ("0.004", 16, 0.008, 16),
    "long-step": ("0.005", 16, 0.100, 16),
    "barely": ("0.001", 16, 0.060, 16),
    "small-batch": ("0.020", 2, 0.010, 16),
    "skewed": ("0.002 if index % 16 else 0.060", 16, 0.030, 16),
    "exponential": ("random.expovariate(200)", 16, 0.025, 16),
    "wide": ("0.004", 16, 0.030, 65536),
}
WORKERS, PREFETCH = (0, 1, 2, 3, 4, 6, 8, 12), (2, 4)


def cells() -> list[Loader]:
    """The grid: no workers once, each other count with each prefetch factor."""
    counts = [(n, p) for n in WORKERS for p in PREFETCH if n or p == PREFETCH[0]]
    return [Loader(num_workers=n, prefetch_factor=p, persistent_workers=n > 0) for n, p in counts]


def step_s(launches: Launches, feed: Loader, turn: int) -> float:
    """Seconds of a step in one launch; infinite where it failed."""
    request = Request(kind="loader", batches=(), feed=feed, steps=24, seconds_per_batch=3.0, repeat=turn)
    trial = launches.run(request, patience_s=300)
    return trial.measured.get("mean_step_s", float("inf")) if trial.fits else float("inf")


def grid(launches: Launches, rounds: int) -> Loader:
    """The cell with the fastest launch."""
    settings = cells()
    best = dict.fromkeys(settings, float("inf"))
    for turn in range(rounds):
        random.Random(turn).shuffle(settings)
        for feed in settings:
            best[feed] = min(best[feed], step_s(launches, feed, turn))
        settings = sorted(settings, key=lambda feed: best[feed])[: max(4, len(settings) // 2)]
    return settings[0]


def duel(launches: Launches, feeds: Sequence[Loader], times: int) -> list[float]:
    """Median seconds of a step of each, in launches that take turns; a setting that is named twice runs once."""
    seen: dict[Loader, list[float]] = {feed: [] for feed in feeds}
    for turn in range(times):
        for feed in sorted(seen, key=lambda feed: feed.num_workers, reverse=turn % 2 == 1):
            seen[feed].append(step_s(launches, feed, 100 + turn))
    return [median(seen[feed]) for feed in feeds]


def case(name: str, options: argparse.Namespace) -> str:
    """One data set: a row of the table."""
    wait, batch, step, width = SETS[name]
    Path("train.py").write_text(textwrap.dedent(SCRIPT.format(wait=wait, batch=batch, step=step, width=width)))
    words = (sys.executable, "train.py")
    asked = SearchOptions(command=tuple(words), only="loader", budget=f"{options.budget}s", fresh=True, in_place=True)
    found = run(asked)
    look = found.look
    own = Loader()
    chosen = found.findings.feed or own
    with tempfile.TemporaryDirectory() as scratch:
        assert look.training is not None
        launches = Launches(
            command=Command(words), scratch=Path(scratch), isolated=False, lever="loader", keys=(look.training.key,)
        )
        best = grid(launches, options.rounds)
        # the choice as a cell of the grid, without the settings that no cell varies
        chosen = Loader(
            num_workers=chosen.num_workers,
            prefetch_factor=chosen.prefetch_factor,
            persistent_workers=chosen.num_workers > 0,
        )
        choice_s, best_s, own_s = duel(launches, (chosen, best, cells()[0]), options.duel)
    return (
        f"| {name} | {chosen.num_workers} x {chosen.prefetch_factor} | {1e3 * choice_s:.1f} ms | "
        f"{best.num_workers} x {best.prefetch_factor} | {1e3 * best_s:.1f} ms | {best_s / choice_s:.1%} | "
        f"{own_s / choice_s:.2f} | {found.launches} | {found.seconds:.0f} s |"
    )


def main() -> None:
    """Print the table, and write it where a record was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--duel", type=int, default=5, help="launches of each setting that is compared at the end")
    parser.add_argument("--budget", type=int, default=300, help="seconds for each search")
    parser.add_argument("--record", type=Path, default=None)
    options = parser.parse_args()
    numbers = f"--rounds {options.rounds} --duel {options.duel} --budget {options.budget}"
    called = f"python benchmarks/script_loader.py {numbers}"
    versions = f"gpudoc {gpudoc.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    lines = [
        f"# The loader of a script beside a grid, {date.today().isoformat()}",
        "",
        f"{versions}, {cpus_usable():g} CPUs, load {os.getloadavg()[0]:.1f} at the start. `{called}`",
        "",
        "| data set | chosen | its step | best cell | its step | share of best | over no workers | launches | search |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        os.environ["GPUDOC_PROFILE_DIR"] = str(Path(place) / "profiles")
        for name in options.sets.split(","):
            lines.append(case(name, options))
            print(lines[-1], flush=True)
        os.chdir(ROOT)
    text = "\n".join(lines) + "\n"
    if options.record:
        options.record.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
