"""Whether the largest batch holds on other CPUs: the search, then `gpudoc train` on both sides of its answer.

    python campaigns/tune_isa.py [--only mlp,conv] [--isa AVX2,SSE4] [--limit 384] [--steps 500]
                                  [--results rows.jsonl [--resume]] [--budget 600] [--record FILE]

A CPU with fewer instructions is played by the switches of PyTorch, oneDNN, MKL and glibc, which change packed weights,
scratch memory and the order of allocations. Each row is a search under one of them, then training at the answer for
`--steps` steps with five checkpoints, and at the next batch that can be told from it, both under the same limit without
a rescue. An epoch ends within those steps: after its last partial batch a conv net holds 5 to 7 MiB more, which the
search reckons with. The next batch is the one that the search saw fail, or the first that needs HELD_MIB more than the
answer: as much as a trial holds for what training may hold besides. Memory decides, so that other work beside it does
not matter. Exit code 1 when an answer did not live, or the batch above it did.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from in_parts import add_options, open_parts
from tune_exactness import search, train
from tune_workloads import KINDS, write_workload

from gpudoc.profile import store
from gpudoc.train.loop.saving import NO_ROOM
from gpudoc.units import MIB

ISAS = {
    "as it is": {},
    "AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    "SSE4": {"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "ATEN_CPU_CAPABILITY": "default"},
    "glibc without AVX": {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-ERMS"},
}
# a prime: an epoch ends with a partial batch, whatever the batch
NUM_SAMPLES = 1999
# 2 MiB by which peaks wander from process to process, and 6 MiB for a command line with its screen and threads
HELD_MIB = 8
COLUMNS = (
    *("model", "switches", "CPU", "limit MiB", "largest", "train there", "a trial fails at"),
    *("the next to tell", "train there", "right"),
)


class Training(NamedTuple):
    """How many steps training made, whether it had room to write checkpoints beside them, and its profile's CPU."""

    steps: int
    is_beside: bool
    cpu: str


def trained(kind: str, limit_mib: int, batch: int, steps: int) -> Training:
    """A training at `batch`, to its end or until memory runs out."""
    with tempfile.TemporaryDirectory() as folder:
        write_workload(Path(folder), kind, NUM_SAMPLES)
        done = train(folder, kind, limit_mib, batch, steps)
        profile = Path(folder) / "run" / "profile.yaml"
        cpu = store.load(profile).hardware.title if profile.exists() else "?"
        is_beside = NO_ROOM not in done.stderr
        if done.returncode == 0:
            return Training(steps, is_beside, cpu)
        told = re.search(r"out of memory at step (\d+)", done.stderr)
        if told is None:
            raise SystemExit(f"{kind} at {batch} ended in another way: {done.stderr[-800:]}")
        return Training(int(told[1]), is_beside, cpu)


def row(kind: str, limit_mib: int, steps: int) -> dict[str, object]:
    """One search and both trainings."""
    with tempfile.TemporaryDirectory() as folder:
        found, _ = search(str(write_workload(Path(folder), kind, NUM_SAMPLES)), limit_mib * MIB, [], settle=True)
    assert found.line is not None
    assert found.fails_at is not None
    lived = trained(kind, limit_mib, found.batch, steps)
    above = max(found.fails_at, found.batch + math.ceil(HELD_MIB * MIB / found.line.bytes_per_sample))
    died = trained(kind, limit_mib, above, steps)
    return {
        "cpu": lived.cpu,
        "batch": found.batch,
        "fails_at": found.fails_at,
        "above": above,
        "lived": lived.steps,
        "lived_beside": lived.is_beside,
        "died": died.steps,
        "died_beside": died.is_beside,
        "of": steps,
    }


def as_text(row: dict) -> str:
    """A row of the table."""

    def told(which: str) -> str:
        waited = "" if row[f"{which}_beside"] else ", which wait for checkpoints"
        return f"{row[which]} of {row['of']} steps{waited}"

    cells = [*(row[name] for name in ("model", "isa", "cpu", "limit", "batch")), told("lived")]
    cells += [row["fails_at"], row["above"], told("died"), "yes" if row["died"] < row["of"] == row["lived"] else "NO"]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    """Measure what is missing, print the table, and write it where a record was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--isa", default=",".join(ISAS))
    parser.add_argument("--limit", type=int, default=384, help="MiB")
    parser.add_argument("--steps", type=int, default=500)
    add_options(parser)
    options = parser.parse_args()
    parts = open_parts(options)
    known = {(row["model"], row["isa"], row["limit"]) for row in parts.rows}
    for kind in options.only.split(","):
        for isa in options.isa.split(","):
            if (kind, isa, options.limit) in known or parts.time_is_up():
                continue
            os.environ.update(ISAS[isa])
            try:
                parts.add(model=kind, isa=isa, limit=options.limit, **row(kind, options.limit, options.steps))
            finally:
                for name in ISAS[isa]:
                    del os.environ[name]
            print(as_text(parts.rows[-1]), flush=True)
    table = [as_text(one) for one in parts.rows]
    wrong = sum(line.endswith("NO |") for line in table)
    head = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    text = "\n".join([*head, *table, "", f"{len(table) - wrong} of {len(table)} right. {parts.about()}"])
    print(text)
    if options.record:
        options.record.write_text(f"# The largest batch under other instruction sets\n\n{text}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
