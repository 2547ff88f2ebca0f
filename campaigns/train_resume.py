"""Resume over a grid: is an interrupted run the uninterrupted one, bit for bit?

    python campaigns/train_resume.py [--record]

Workers {0, 2} x precision {fp32, bf16} x accumulation {1, 3} x interruption {in the middle of an epoch, at its end,
inside the checkpoint writer}. Each interruption is a kill -9; compared are sha256 of weights, optimizer and random
state, the digest of all sample ids, and every logged loss. Dropout, batch norm and augmentation from all three
generators are on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from train_record import write_record  # noqa: E402

from gpudoc.train.start.identity import digest  # noqa: E402
from gpudoc.train.state import checkpoint  # noqa: E402
from tests.train.support import command, environment, metrics, write_workload  # noqa: E402

STEPS = 20
# 96 samples, 12 a step: epochs end at the steps 8 and 16
WHERE = {"mid-epoch": 5, "epoch boundary": 8, "during checkpoint": 11}


def state_of(run: pathlib.Path) -> str:
    loaded = checkpoint.load(run / "checkpoints" / f"step-{STEPS}")
    kept = {key: value for key, value in loaded.state.items() if key != "seconds"}
    losses = [(row["step"], row["loss"]) for row in metrics(run)]
    return digest([dict(loaded.model), dict(loaded.optimizer), kept, dict(loaded.rng(0) or {}), losses])


def start(folder: pathlib.Path, run: str, workers: int, *more: object) -> subprocess.Popen:
    common = ("--device", "cpu", "--model", "cfg.yaml", "--profile", "off", "--no-preflight", "--run-dir", run)
    line = command(*common, "--steps", STEPS, "--num-workers", workers, *more)
    quiet = subprocess.DEVNULL
    return subprocess.Popen(line, cwd=folder, env=environment(), stdout=quiet, stderr=subprocess.PIPE)


def interrupt(folder: pathlib.Path, workers: int, where: str, line: tuple[object, ...]) -> None:
    """Kill the run at the place; what came later than the place is removed, as if the kill had been that exact."""
    step = WHERE[where]
    process = start(folder, "broken", workers, *line, "--set", f"checkpoint_every={step}", "--set", "keep=99")
    run = folder / "broken"
    ahead = f"step-{step}.tmp-*" if where == "during checkpoint" else f"step-{step}/manifest.json"
    while process.poll() is None and not list((run / "checkpoints").glob(ahead)):
        time.sleep(0.0005)
    process.kill()
    process.communicate()
    checkpoint.remove_others(run / "checkpoints", set(range(step + 1)))
    (run / "summary.json").unlink(missing_ok=True)


def cell(folder: pathlib.Path, workers: int, precision: str, accumulation: int, where: str) -> bool:
    train = {"precision": precision, "log_every": 1}
    data = {"draw": "python numpy torch"}
    write_workload(folder, model={"dropout": 0.3, "norm": True}, data=data, **train)
    line = ("--set", f"accumulation={accumulation}")
    assert start(folder, "whole", workers, *line).wait() == 0
    interrupt(folder, workers, where, line)
    assert start(folder, "broken", workers, *line).wait() == 0
    return state_of(folder / "whole") == state_of(folder / "broken")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--only", type=int, default=None, help="the first N cells")
    options = parser.parse_args()
    rows = []
    grid = list(itertools.product((0, 2), ("fp32", "bf16"), (1, 3), WHERE))
    for workers, precision, accumulation, where in grid[: options.only]:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="train-resume-"))
        equal = cell(folder, workers, precision, accumulation, where)
        shutil.rmtree(folder)
        rows.append(
            {"workers": workers, "precision": precision, "accumulation": accumulation, "at": where, "equal": equal}
        )
        print(rows[-1], file=sys.stderr)
    results = {"cells": rows, "equal": sum(row["equal"] for row in rows), "of": len(rows)}
    print(json.dumps(results, indent=1))
    if options.record:
        write_record("train-resume", {"what": __doc__.splitlines()[0], "results": results})
    sys.exit(0 if results["equal"] == results["of"] else 1)


if __name__ == "__main__":
    main()
