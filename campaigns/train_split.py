"""Is the time split true: does a sleep planted in the data set appear as data_wait, and how little is `other`?

    python campaigns/train_split.py [--rounds 3] [--steps 40] [--record]

Planted: the data set and the model of a small workload sleep, and write down for how long they really did; the steps
are timed by the workload's own clock, from forward to the end of the update. Without workers data_wait must be the
data set's sleep; with workers, what the steps leave of the time. Both are compared as shares of the wall time, in
points. Built in: the share of `other` when quickstart and images train by default settings, evaluation and checkpoints
included.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from train_record import write_record  # noqa: E402

from tests.train.support import command, environment, summary  # noqa: E402

# shares of the time are asked for with these, in points and per cent
MOST_OFF_POINTS = 3.0
MOST_OTHER_PERCENT = 5.0

MODULE = '''
import os
import pathlib
import time

import torch


def sleep(seconds, where):
    """Sleep, and note the time that it really took."""
    began = time.perf_counter()
    time.sleep(seconds)
    note(time.perf_counter() - began, where)


def note(seconds, where):
    """Add a time to the file of this process."""
    with pathlib.Path(os.environ["SLEPT"], f"{where}-{os.getpid()}").open("a") as stream:
        stream.write(f"{seconds}\\n")


class Points(torch.utils.data.Dataset):
    def __init__(self, seconds):
        self.x = torch.randn(960, 8, generator=torch.Generator().manual_seed(1))
        self.seconds = seconds

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        if self.seconds:
            sleep(self.seconds, "data")
        return self.x[index], self.x[index].sum(0, keepdim=True)


class Timed(torch.optim.SGD):
    """Writes down how long it took from the beginning of forward to the end of the update, by its own clock."""

    began = 0.0

    def step(self, closure=None):
        super().step(closure)
        note(time.perf_counter() - Timed.began, "step")


class Net(torch.nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.body = torch.nn.Linear(8, 1)
        self.seconds = seconds

    def forward(self, x):
        Timed.began = time.perf_counter()
        sleep(self.seconds, "model")
        return self.body(x)
'''

# (seconds a sample, seconds a step in the model, workers); 12 samples a step
PLANTED = {
    "a tenth": (0.0002, 0.030, 0),
    "a third": (0.001, 0.030, 0),
    "three quarters": (0.005, 0.030, 0),
    "nothing": (0.0, 0.030, 0),
    "two workers that keep up": (0.001, 0.030, 2),
    "two workers that are too slow": (0.010, 0.030, 2),
}


def run(folder: pathlib.Path, *arguments: object) -> dict:
    slept = folder / "slept"
    slept.mkdir(parents=True, exist_ok=True)
    line = command("--device", "cpu", "--profile", "off", "--no-preflight", "--run-dir", folder / "run", *arguments)
    done = subprocess.run(
        line, cwd=folder, env={**environment(), "SLEPT": str(slept)}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    return summary(folder / "run")


def slept_s(folder: pathlib.Path, where: str) -> float:
    return sum(float(row) for path in (folder / "slept").glob(f"{where}-*") for row in path.read_text().split())


def planted(name: str, steps: int) -> dict[str, float]:
    """One run with planted sleeps: the share expected and the one that was told, in per cent."""
    sample_s, step_s, workers = PLANTED[name]
    with tempfile.TemporaryDirectory(prefix="train-split-") as place:
        folder = pathlib.Path(place)
        (folder / "planted.py").write_text(MODULE)
        config = {
            "model": {"target": "planted:Net", "args": {"seconds": step_s}},
            "data": {"target": "planted:Points", "args": {"seconds": sample_s}},
            "loss": {"target": "torch.nn:MSELoss"},
            "optimizer": {"target": "planted:Timed", "args": {"lr": 0.01}},
            "train": {"global_batch": 12, "precision": "fp32", "log_every": 5},
        }
        (folder / "cfg.yaml").write_text(json.dumps(config))
        found = run(folder, "--model", "cfg.yaml", "--steps", steps, "--num-workers", workers)
        wall = sum(found["seconds"].values())
        in_step, in_data = slept_s(folder, "step"), slept_s(folder, "data")
        # workers sleep beside the steps: what is left of the time when the steps' own and the rest is taken out
        rest = sum(found["seconds"][phase] for phase in ("checkpoint", "evaluate", "other"))
        expected = in_data / wall if workers == 0 else max(0.0, wall - in_step - rest) / wall
        told = found["seconds"]["data_wait"] / wall
        other = found["seconds"]["other"] / wall
    return {"expected": 100 * expected, "data_wait": 100 * told, "off": 100 * (told - expected), "other": 100 * other}


def built_in(name: str, steps: int) -> dict[str, float]:
    """One run of a built-in workload: every phase's share in per cent."""
    with tempfile.TemporaryDirectory(prefix="train-split-") as place:
        if name == "images":
            line = [sys.executable, "-m", "gpudoc.workload.images", "images-data"]
            subprocess.run(line, cwd=place, env=environment(), check=True, capture_output=True)
        found = run(pathlib.Path(place), "--model", name, "--steps", steps)
    return {phase: 100 * share for phase, share in found["share"].items()}


def rounded(row: dict[str, float]) -> dict[str, float]:
    return {key: round(value, 2) for key, value in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    sleeps = {name: [planted(name, options.steps) for _ in range(options.rounds)] for name in PLANTED}
    workloads = {
        name: [built_in(name, options.steps) for _ in range(options.rounds)] for name in ("quickstart", "images")
    }
    worst = max(abs(row["off"]) for rows in sleeps.values() for row in rows)
    most_other = max(row["other"] for rows in workloads.values() for row in rows)
    results = {
        "planted_percent": {name: [rounded(row) for row in rows] for name, rows in sleeps.items()},
        "worst_difference_points": round(worst, 2),
        "allowed_points": MOST_OFF_POINTS,
        "built_in_percent": {name: [rounded(row) for row in rows] for name, rows in workloads.items()},
        "most_other_percent": round(most_other, 2),
        "allowed_other_percent": MOST_OTHER_PERCENT,
        "steps": options.steps,
    }
    print(json.dumps(results, indent=1))
    if options.record:
        write_record("train-split", {"what": __doc__.splitlines()[0], "results": results})
    sys.exit(0 if worst <= MOST_OFF_POINTS and most_other <= MOST_OTHER_PERCENT else 1)


if __name__ == "__main__":
    main()
