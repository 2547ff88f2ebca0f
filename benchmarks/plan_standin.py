"""The largest batch that `tune --target` predicts, against the one that PyTorch's own CUDA allocator holds.

    python benchmarks/plan_standin.py --results rows.jsonl [--resume] [--budget 600] [--only mlp,gpt-384:4GiB:bf16]

Runs with the Python of a stand-in (tests/standin), with arithmetic off: no number is right there, but every byte is
allocated by PyTorch's own CUDA code. A trial is the tuner's: a process of its own that trains a few steps at one batch.
From the prediction on at most LAUNCHES of them bracket the truth between a batch that fits and one that does not. The
size of a context and of cuDNN's workspaces are the stand-in's assumptions: nothing here says anything about them.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
# before torch is imported, here and in the trials
os.environ |= {
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]),
    "STANDIN_STATE": f"plan-{os.getpid()}",
    "STANDIN_MATH": "0",
    "STANDIN_GPUS": "1",
    "STANDIN_CC": "9.0",
}

import yaml  # noqa: E402
from in_parts import Parts, add_options, open_parts  # noqa: E402
from plan_nets import NETS  # noqa: E402

from gpudoc.errors import GpudocError  # noqa: E402
from gpudoc.knowledge.cards import context_bytes  # noqa: E402
from gpudoc.plan.advice import Variants  # noqa: E402
from gpudoc.plan.assess import answer  # noqa: E402
from gpudoc.plan.settings import Settings  # noqa: E402
from gpudoc.plan.target import parse_target  # noqa: E402
from gpudoc.progress import SILENT  # noqa: E402
from gpudoc.stats import median, quantile  # noqa: E402
from gpudoc.tune.search.session import FIT_STEPS  # noqa: E402
from gpudoc.tune.trial.launcher import Launcher, Where  # noqa: E402
from gpudoc.tune.trial.messages import End, Request, Variant  # noqa: E402
from gpudoc.workload.build import load_workload  # noqa: E402

LAUNCHES = 5
CAPACITIES = ("4GiB", "8GiB", "16GiB")
SETTINGS = {
    "fp32": Variant(precision="fp32"),
    "bf16": Variant(precision="bf16"),
    "checkpointing": Variant(precision="bf16", activation_checkpointing=True),
}


def write_config(folder: Path, name: str) -> Path:
    """The net as a cfg.yaml, with the module beside it: a config imports nothing from elsewhere."""
    shutil.copy(ROOT / "benchmarks" / "plan_nets.py", folder)
    path = folder / f"{name}.yaml"
    config = {
        "model": {"target": "plan_nets:build", "args": {"name": name}},
        "data": {"target": "plan_nets:Zeros", "args": {"name": name}},
        "loss": {"target": "plan_nets:Loss"},
        "optimizer": {"target": "torch.optim:AdamW", "args": {"lr": 1e-4}},
        "train": {"reference_batch": 8, "precision": "fp32"},
    }
    path.write_text(yaml.safe_dump(config))
    return path


def bracket(fits: Callable[[int], bool], guess: int, step: int, launches: int) -> tuple[int, int | None]:
    """(a batch that fits, or 0, and the smallest seen that does not) after at most `launches` questions."""
    low, high, asked = 0, None, max(1, guess)
    for _ in range(launches):
        if fits(asked):
            low = asked
        else:
            high = asked
        if high is None:
            asked, step = low + step, 2 * step
        elif low == 0:
            asked, step = max(1, high - step), 2 * step
        else:
            asked = (low + high) // 2
        if high is not None and high - low <= 1:
            break
    return low, high


def cells(only: list[str]) -> Iterator[tuple[str, str, str]]:
    """Every (net, capacity, setting), the quick ones first."""
    for capacity in CAPACITIES:
        for name in NETS:
            for setting in SETTINGS:
                if not only or name in only or f"{name}:{capacity}:{setting}" in only:
                    yield name, capacity, setting


def measure(parts: Parts, folder: Path, name: str, capacity: str, setting: str) -> None:
    """One cell as one row."""
    cell = {"net": name, "capacity": capacity, "setting": setting}
    variant, target = SETTINGS[setting], parse_target(capacity)
    source = str(write_config(folder, name))
    settings = Settings(
        like="cuda", precision=variant.precision, activation_checkpointing=variant.activation_checkpointing
    )
    try:
        found = answer(Variants(load_workload(source), SILENT), target, settings)
    except GpudocError as error:
        if setting != "checkpointing":
            raise
        parts.add(**cell, because=error.message)
        return
    os.environ |= {
        "STANDIN_GPU_BYTES": str(target.memory_bytes),
        "STANDIN_CONTEXT_BYTES": str(context_bytes(target.capability)),
    }
    ends: dict[int, str] = {}
    with Launcher(source) as launcher:

        def fits(batch: int) -> bool:
            request = Request(kind="fit", batches=(batch,), variant=variant, steps=FIT_STEPS)
            trial = launcher.run(request, Where(device="cuda:0", limit_bytes=None, silence_s=600.0))
            ends[batch] = trial.end.value
            if not trial.fits and not trial.end.is_memory:
                raise RuntimeError(f"{name} at {batch}: {trial.end.value}: {trial.detail}")
            # memory that the allocator had to give back first is memory that was enough
            return trial.fits or trial.end is End.ALLOCATOR_RETRY

        low_guess, high_guess = found.largest_batch_interval
        step = max(1, (high_guess - low_guess) // 8)
        low, high = bracket(fits, found.largest_batch, step, LAUNCHES)
    parts.add(**cell, predicted=found.largest_batch, interval=[low_guess, high_guess], fits=low, fails=high, ends=ends)


def error_of(row: dict) -> float:
    """How far the prediction lies outside of the bracket, relative to its nearer end; 0 inside of it."""
    if row["predicted"] < row["fits"]:
        return row["predicted"] / row["fits"] - 1
    if row["fails"] is not None and row["predicted"] >= row["fails"]:
        # the largest that fits is below `fails`
        return row["predicted"] / max(1, row["fails"] - 1) - 1
    return 0.0


def holds(row: dict) -> bool:
    """Whether the stated interval meets the bracket."""
    low, high = row["interval"]
    return high >= row["fits"] and (row["fails"] is None or low < row["fails"])


def report(parts: Parts) -> str:
    """The rows as a table, with the errors of the points and how often the interval held."""
    rows = [row for row in parts.rows if "predicted" in row]
    lines = [
        "| net | capacity | setting | predicted | interval | fits | fails | error | interval holds |",
        "|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {row['net']} | {row['capacity']} | {row['setting']} | {row['predicted']} | {row['interval'][0]} to "
            f"{row['interval'][1]} | {row['fits']} | {row['fails']} | {error_of(row):+.1%} | "
            f"{'yes' if holds(row) else 'no'} |"
            for row in rows
        ),
    ]
    errors = [abs(error_of(row)) for row in rows]
    if errors:
        lines.append(
            f"\n{len(rows)} cells: median error {median(errors):.1%}, p90 {quantile(errors, 0.9):.1%}, largest "
            f"{max(errors):.1%}; the interval held in {sum(map(holds, rows))}. {parts.about()}"
        )
    lines += [f"- {r['net']}, {r['capacity']}, {r['setting']}: {r['because']}" for r in parts.rows if "because" in r]
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default="", help="nets, or cells as net:capacity:setting, with commas between")
    add_options(options)
    chosen = options.parse_args()
    if not any(importlib.util.find_spec(name) for name in ("standin_hook", "standin_math")):
        raise SystemExit("this needs an environment of the stand-in: tests/standin")
    parts = open_parts(chosen)
    done = {(row["net"], row["capacity"], row["setting"]) for row in parts.rows}
    try:
        with tempfile.TemporaryDirectory() as folder:
            for cell in cells([name for name in chosen.only.split(",") if name]):
                if cell in done or parts.time_is_up():
                    continue
                measure(parts, Path(folder), *cell)
                print(parts.rows[-1], flush=True)
    finally:
        Path(f"/dev/shm/standin-{os.getuid()}-{os.environ['STANDIN_STATE']}").unlink(missing_ok=True)
    text = report(parts)
    print(text)
    if chosen.record:
        chosen.record.write_text(text + "\n")


if __name__ == "__main__":
    main()
