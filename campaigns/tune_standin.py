"""How exact tune's largest batch is on PyTorch's own CUDA allocator, and how many launches it takes to find it.

    python campaigns/tune_standin.py --results rows.jsonl [--resume] [--budget 600] [--only gpt-384:4GiB:bf16,...]

Runs with the Python of a stand-in, as plan_standin.py does, whose nets and cells these are: every byte is allocated by
PyTorch's CUDA code, no figure is a GPU's. The search is tune's own, begun at its plan's prediction and proved from both
sides. The truth is asked apart from it: a bisection around its answer in processes of its own, then three batches on
either side, since fragmentation leaves holes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import closing
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from in_parts import add_options, largest_of, open_parts

# sets up the stand-in's environment, before torch is imported
from plan_standin import SETTINGS, Bench, cells

from gpudoc.plan.target import PlanTarget, parse_target
from gpudoc.progress import SILENT
from gpudoc.stats import median
from gpudoc.tune.search.foresight import foresee
from gpudoc.tune.search.journal import Journal
from gpudoc.tune.search.largest import find_largest, settle_largest
from gpudoc.tune.search.runner import WorkloadRunner
from gpudoc.tune.search.session import Session
from gpudoc.tune.search.sizing import STEADY_STEPS
from gpudoc.tune.trial.launcher import Where

CELLS = (
    "gpt-384:4GiB:fp32",
    "gpt-384:4GiB:bf16",
    "llama:4GiB:bf16",
    "bert:4GiB:bf16",
    "mlp:4GiB:bf16",
    "resnet-64:4GiB:bf16",
)
AROUND = 3


class Search:
    """One cell: tune's search, then the truth."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def measure(self, name: str, capacity: str, setting: str) -> None:
        """Both answers as one row."""
        target = parse_target(capacity)
        launcher = self._bench.launcher_of(name, target)
        count = launcher.inspect(Where(device="cuda:0", limit_bytes=None), 1).num_samples
        # as tune: what is free on the card
        limit = target.allocator_bytes
        session = Session(
            runner=WorkloadRunner(launcher=launcher, where=Where(device="cuda:0", limit_bytes=limit, cap=count)),
            journal=Journal(None),
            progress=SILENT,
            budget_s=1e9,
            share_s=1e9,
            variant=SETTINGS[setting],
        )
        expected = foresee(session, cap=count, capability=(9, 0))
        found = find_largest(session, limit_bytes=limit, cap=count, expected=expected)
        found = settle_largest(session, found, steps=STEADY_STEPS)
        session.release()
        largest, holes = self._truth(name, target, setting, found.batch)
        self._bench.parts.add(
            net=name,
            capacity=capacity,
            setting=setting,
            found=found.batch,
            fails_at=found.fails_at,
            launches=found.launches,
            ooms=found.num_oom,
            predicted=found.predicted,
            settled=found.settled,
            largest=largest,
            holes=holes,
        )

    def _truth(self, name: str, target: PlanTarget, setting: str, guess: int) -> tuple[int, list[int]]:
        """(the largest batch that fits, those below it and near it that do not)."""

        def fits(batch: int) -> bool:
            return self._bench.fits(name, target, setting, batch)

        largest, known = largest_of(fits, max(1, guess * 7 // 8), guess * 9 // 8 + 2, AROUND)
        return largest, sorted(batch for batch, is_fitting in known.items() if batch < largest and not is_fitting)


def report(rows: list[dict], about: str) -> str:
    """The rows as a table, and how often the search had the truth."""
    lines = [
        "| net | capacity | setting | predicted | found | fails at | largest | holes | share | launches | OOM |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        holes = ", ".join(map(str, row["holes"])) or "none"
        lines.append(
            f"| {row['net']} | {row['capacity']} | {row['setting']} | {row['predicted']} | {row['found']} | "
            f"{row['fails_at']} | {row['largest']} | {holes} | {row['found'] / row['largest']:.3f} | "
            f"{row['launches']} | {row['ooms']} |"
        )
    if rows:
        shares, launches = [row["found"] / row["largest"] for row in rows], [row["launches"] for row in rows]
        lines.append(
            f"\n{len(rows)} cells. Share is what was found over the largest that fits: median {median(shares):.3f}, "
            f"least {min(shares):.3f}. Launches: median {median(launches):g}, most {max(launches)}. {about}"
        )
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default=",".join(CELLS), help="nets, or cells as net:capacity:setting")
    add_options(options)
    chosen = options.parse_args()
    parts = open_parts(chosen)
    done = {(row["net"], row["capacity"], row["setting"]) for row in parts.rows}
    try:
        with tempfile.TemporaryDirectory() as folder, closing(Bench(parts, Path(folder))) as bench:
            for cell in cells([name for name in chosen.only.split(",") if name]):
                if cell in done or parts.time_is_up():
                    continue
                Search(bench).measure(*cell)
                print(parts.rows[-1], flush=True)
    finally:
        Path(f"/dev/shm/standin-{os.getuid()}-{os.environ['STANDIN_STATE']}").unlink(missing_ok=True)
    text = report(parts.rows, parts.about())
    print(text)
    if chosen.record:
        chosen.record.write_text(text + "\n")


if __name__ == "__main__":
    main()
