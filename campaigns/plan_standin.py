"""The largest batch that `tune --target` predicts, against the one that PyTorch's own CUDA allocator holds.

    python campaigns/plan_standin.py --results rows.jsonl [--resume] [--budget 600] [--only mlp,gpt-384:4GiB:bf16]
    python campaigns/plan_standin.py --results rows.jsonl --resume --again          # predict anew, keep the trials

Runs with the Python of a stand-in (tests/standin), with arithmetic off: no number is right there, but every byte is
allocated by PyTorch's own CUDA code. A trial is the tuner's: a process of its own, since an allocator that has run
before has other segments, that trains a few steps at one batch. From the prediction on at most LAUNCHES of them bracket
the truth between a batch that fits and one that does not; LOOKS more at either side of it look for holes, which are
batches that fail although a larger one fits. The size of a context and of cuDNN's workspaces are the stand-in's
assumptions: nothing here says anything about them.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
# before torch is imported, here and in the trials
os.environ |= {
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "campaigns"), os.environ.get("PYTHONPATH", "")]),
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
from gpudoc.plan.settings import PlanSettings  # noqa: E402
from gpudoc.plan.target import PlanTarget, TargetAnswer, parse_target  # noqa: E402
from gpudoc.progress import SILENT  # noqa: E402
from gpudoc.stats import median, quantile  # noqa: E402
from gpudoc.tune.search.runner import FIT_STEPS  # noqa: E402
from gpudoc.tune.trial.launcher import Launcher, Where  # noqa: E402
from gpudoc.tune.trial.messages import End, TrialRequest, Variant  # noqa: E402
from gpudoc.workload.build import load_workload  # noqa: E402

LAUNCHES = 7
LOOKS = 1
# a bracket of a hundredth is narrow enough
PRECISION = 100
CAPACITIES = ("4GiB", "8GiB", "16GiB")
SETTINGS = {
    "fp32": Variant(precision="fp32"),
    "bf16": Variant(precision="bf16"),
    "checkpointing": Variant(precision="bf16", activation_checkpointing=True),
}


def write_config(folder: Path, name: str) -> Path:
    """The net as a cfg.yaml, with the module beside it: a config imports nothing from elsewhere."""
    shutil.copy(ROOT / "campaigns" / "plan_nets.py", folder)
    path = folder / f"{name}.yaml"
    config = {
        "model": {"target": "plan_nets:build", "args": {"name": name}},
        "data": {"target": "plan_nets:Samples", "args": {"name": name}, "collate": "plan_nets:collate"},
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
        if high is not None and high - low <= max(1, high // PRECISION):
            break
    return low, high


def look_around(fits: Callable[[int], bool], low: int, high: int | None) -> None:
    """Ask a few batches below one that fits and above one that does not."""
    step = max(1, low // 64)
    for number in range(1, LOOKS + 1):
        if low - step * number > 0:
            fits(low - step * number)
        if high is not None:
            fits(high + step * number)


def cells(only: list[str]) -> Iterator[tuple[str, str, str]]:
    """Every (net, capacity, setting); a net is traced once for all capacities."""
    for name in NETS:
        for capacity in CAPACITIES:
            for setting in SETTINGS:
                if not only or name in only or f"{name}:{capacity}:{setting}" in only:
                    yield name, capacity, setting


class Bench:
    """What cells share: plans, which hold for every capacity, and the process that trials are forked from."""

    def __init__(self, parts: Parts, folder: Path) -> None:
        self.parts = parts
        self._folder = folder
        self._variants: dict[str, Variants] = {}
        self._launcher: Launcher | None = None
        self._serves = ("", "")

    def close(self) -> None:
        """End the process that trials are forked from."""
        if self._launcher is not None:
            self._launcher.close()
            self._launcher = None

    def predict(self, name: str, target: PlanTarget, setting: str) -> TargetAnswer:
        """What `tune --target` says; GpudocError where the setting cannot be had."""
        if name not in self._variants:
            self._variants[name] = Variants(load_workload(str(write_config(self._folder, name))), SILENT)
        variant = SETTINGS[setting]
        recomputes = variant.activation_checkpointing
        settings = PlanSettings(like="cuda", precision=variant.precision, activation_checkpointing=recomputes)
        return answer(self._variants[name], target, settings)

    def measure(self, name: str, capacity: str, setting: str) -> None:
        """One cell as one row; trials that an earlier row of the cell has are not run again."""
        cell = {"net": name, "capacity": capacity, "setting": setting}
        target = parse_target(capacity)
        try:
            found = self.predict(name, target, setting)
        except GpudocError as error:
            if setting != "checkpointing":
                raise
            self.parts.add(**cell, because=error.message)
            return
        ends = {int(batch): end for row in self.parts.rows if _is(row, cell) for batch, end in row["ends"].items()}

        def fits(batch: int) -> bool:
            if batch not in ends:
                ends[batch] = self._try(name, target, setting, batch)
            return ends[batch] in (End.FITS.value, End.ALLOCATOR_RETRY.value)

        low_guess, high_guess = found.largest_batch_interval
        step = max(1, (high_guess - low_guess) // 16)
        low, high = bracket(fits, found.largest_batch, step, LAUNCHES)
        look_around(fits, low, high)
        guess = {"predicted": found.largest_batch, "interval": [low_guess, high_guess]}
        self.parts.add(**cell, **guess, ends=dict(sorted(ends.items())))

    def fits(self, name: str, target: PlanTarget, setting: str, batch: int) -> bool:
        """Whether a trial of its own trains at `batch`; memory that the allocator gave back first is enough memory."""
        return self._try(name, target, setting, batch) in (End.FITS.value, End.ALLOCATOR_RETRY.value)

    def _try(self, name: str, target: PlanTarget, setting: str, batch: int) -> str:
        launcher = self.launcher_of(name, target)
        request = TrialRequest(kind="fit", batches=(batch,), variant=SETTINGS[setting], steps=FIT_STEPS)
        trial = launcher.run(request, Where(device="cuda:0", limit_bytes=None, silence_s=600.0))
        if not trial.fits and not trial.end.is_memory:
            raise RuntimeError(f"{name} at {batch}: {trial.end.value}: {trial.detail}")
        return str(trial.end.value)

    def launcher_of(self, name: str, target: PlanTarget) -> Launcher:
        """The process that trials of this net on this card are forked from; it reads the card's size when it starts."""
        if self._launcher is None or self._serves != (name, target.name):
            self.close()
            os.environ |= {
                "STANDIN_GPU_BYTES": str(target.memory_bytes),
                "STANDIN_CONTEXT_BYTES": str(context_bytes(target.capability)),
            }
            self._launcher = Launcher(str(write_config(self._folder, name)))
            self._serves = (name, target.name)
        return self._launcher


def _is(row: dict, cell: dict) -> bool:
    return "ends" in row and all(row[key] == value for key, value in cell.items())


def edges(row: dict) -> list[tuple[int, int | None]]:
    """Every (batch that fits, or 0, next larger one tried, which does not), smallest first; several where holes are."""
    seen = [(0, End.FITS.value), *((int(batch), end) for batch, end in row["ends"].items())]
    fitting = {batch: end in (End.FITS.value, End.ALLOCATOR_RETRY.value) for batch, end in sorted(seen)}
    pairs = itertools.pairwise([*fitting, None])
    found = [(here, after) for here, after in pairs if fitting[here] and not (after and fitting[after])]
    # a failure below everything that fits says nothing of what lies below it
    return found[1:] if len(found) > 1 and found[0][0] == 0 else found


def error_of(row: dict) -> float:
    """How far the prediction lies outside of the nearest bracket, relative to its nearer end; 0 inside of it."""
    errors = []
    for fits, fails in edges(row):
        error = 0.0
        if row["predicted"] < fits:
            error = row["predicted"] / fits - 1
        elif fails is not None and row["predicted"] >= fails:
            # the largest that fits is below `fails`
            error = row["predicted"] / max(1, fails - 1) - 1
        errors.append(error)
    return min(errors, key=abs)


def holds(row: dict) -> bool:
    """Whether the stated interval meets every bracket."""
    low, high = row["interval"]
    return all(high >= fits and (fails is None or low < fails) for fits, fails in edges(row))


def width_of(row: dict) -> float:
    """The width of the stated interval, relative to the prediction."""
    return (row["interval"][1] - row["interval"][0]) / max(1, row["predicted"])


def latest(rows: list[dict]) -> list[dict]:
    """The last row of every cell, in the order of the cells' first ones."""
    return list({(row["net"], row["capacity"], row["setting"]): row for row in rows}.values())


def report(parts: Parts) -> str:
    """The rows as a table, with the errors of the points and how often the interval held, by setting."""
    rows = [row for row in latest(parts.rows) if "predicted" in row]
    lines = [
        "| net | capacity | setting | predicted | interval | fits | fails | error | width | interval holds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        fits, fails = ([str(edge[side]) for edge in edges(row)] for side in (0, 1))
        lines.append(
            f"| {row['net']} | {row['capacity']} | {row['setting']} | {row['predicted']} | {row['interval'][0]} to "
            f"{row['interval'][1]} | {', '.join(fits)} | {', '.join(fails)} | {error_of(row):+.1%} | "
            f"{width_of(row):.1%} | {'yes' if holds(row) else 'no'} |"
        )
    lines += [
        "",
        "| setting | cells | error: median, p90, largest | within 1.5 % | interval holds | width: median, largest |",
    ]
    lines.append("|---|---|---|---|---|---|")
    for setting in (*SETTINGS, "all"):
        some = [row for row in rows if setting in ("all", row["setting"])]
        if not some:
            continue
        errors, widths = [abs(error_of(row)) for row in some], [width_of(row) for row in some]
        lines.append(
            f"| {setting} | {len(some)} | {median(errors):.1%}, {quantile(errors, 0.9):.1%}, {max(errors):.1%} | "
            f"{sum(error <= 0.015 for error in errors)} | {sum(map(holds, some))} | "
            f"{median(widths):.1%}, {max(widths):.1%} |"
        )
    launches = [len(row["ends"]) for row in rows]
    if rows:
        lines.append(f"\nTrials per cell: {min(launches)} to {max(launches)}. {parts.about()}")
    lines += [
        f"- {row['net']}, {row['capacity']}, {row['setting']}: {row['because']}"
        for row in latest(parts.rows)
        if "because" in row
    ]
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default="", help="nets, or cells as net:capacity:setting, with commas between")
    options.add_argument(
        "--again", action="store_true", help="predict every cell anew, and run only trials not run yet"
    )
    add_options(options)
    chosen = options.parse_args()
    if not any(importlib.util.find_spec(name) for name in ("standin_hook", "standin_math")):
        raise SystemExit("this needs an environment of the stand-in: tests/standin")
    parts = open_parts(chosen)
    done = set() if chosen.again else {(row["net"], row["capacity"], row["setting"]) for row in parts.rows}
    try:
        with tempfile.TemporaryDirectory() as folder, closing(Bench(parts, Path(folder))) as bench:
            for cell in cells([name for name in chosen.only.split(",") if name]):
                if cell in done or parts.time_is_up():
                    continue
                bench.measure(*cell)
                print(parts.rows[-1], flush=True)
    finally:
        Path(f"/dev/shm/standin-{os.getuid()}-{os.environ['STANDIN_STATE']}").unlink(missing_ok=True)
    text = report(parts)
    print(text)
    if chosen.record:
        chosen.record.write_text(text + "\n")


if __name__ == "__main__":
    main()
