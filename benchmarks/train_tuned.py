"""Tuned against defaults: the gain from a profile on a built-in workload, as a ratio.

    python benchmarks/train_tuned.py --model quickstart --profile FILE [--steps 30] [--rounds 3] [--record]

PyTorch's defaults here are the reference batch in fp32, no workers, nothing fused or compiled by choice
(`--profile off --precision fp32`). Both sides train the same global batch; runs alternate, samples/s are those of the
last logged steps, and the median of the ratios of neighbouring runs is what counts.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from train_record import write_record  # noqa: E402

from tests.train.support import command, environment, metrics  # noqa: E402


def rate(model: str, device: str, steps: int, arguments: tuple[object, ...]) -> float:
    """Samples a second over all logged steps except the first."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="train-tuned-"))
    line = command("--model", model, "--device", device, "--steps", steps, "--run-dir", folder / "run", *arguments)
    more = ("--no-preflight", "--set", "checkpoint_every=0", "--set", "eval_every=1000000", "--set", "log_every=5")
    done = subprocess.run([*line, *more], env=environment(), capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    rows = [row for row in metrics(folder / "run") if "loss" in row][1:]
    shutil.rmtree(folder)
    busy = [sum(row["seconds"][phase] for phase in ("data_wait", "transfer", "compute", "other")) for row in rows]
    samples = [row["samples_per_s"] * sum(row["seconds"].values()) for row in rows]
    return sum(samples) / sum(busy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="quickstart")
    parser.add_argument("--profile", required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    rates: dict[str, list[float]] = {"default": [], "tuned": []}
    sides = {"default": ("--profile", "off", "--precision", "fp32"), "tuned": ("--profile", options.profile)}
    for number in range(options.rounds):
        for side in list(sides)[:: 1 if number % 2 == 0 else -1]:
            rates[side].append(rate(options.model, options.device, options.steps, sides[side]))
    ratios = [tuned / default for default, tuned in zip(rates["default"], rates["tuned"], strict=True)]
    results = {
        "model": options.model,
        "samples_per_s": {side: [round(value, 1) for value in values] for side, values in rates.items()},
        "ratios": [round(ratio, 3) for ratio in ratios],
        "ratio_median": round(statistics.median(ratios), 3),
    }
    print(json.dumps(results, indent=1))
    if options.record:
        write_record(f"train-tuned-{options.model}", {"what": __doc__.splitlines()[0], "results": results})


if __name__ == "__main__":
    main()
