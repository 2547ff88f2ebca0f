"""Fuzzing of every entrance for an hour: broken promises with the number of each case, and a dated record.

    python campaigns/fuzz.py [--seconds 3600] [--processes 1] [--first 0] [--record]
    python campaigns/fuzz.py --show 1234 > case.bin       # the content of one case

Promises: exit code 0, 1 or 2, at most 5 CPU seconds and 512 MiB for 1 MiB of input, no control character on the
terminal, no planted secret in a document that leaves the machine.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from tests.fuzz import campaign, mutation  # noqa: E402

# between the first numbers of two processes
APART = 100_000_000


def report(outcome: campaign.Outcome, seconds: float, processes: int) -> str:
    total = sum(outcome.cases.values())
    lines = [
        f"# Fuzzing, {datetime.date.today()}",
        "",
        f"{total} cases in {processes} x {seconds:.0f} s on {os.cpu_count()} CPUs.",
        f"Load at the end {os.getloadavg()[0]:.1f}.",
        "",
        "| entrance | cases |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in sorted(outcome.cases.items())),
        *(f"| {name} | none: {reason} |" for name, reason in sorted(outcome.shut.items())),
        "",
        f"Exit codes: {dict(sorted(outcome.codes.items()))}.",
        f"Slowest {outcome.slowest[0]:.2f} CPU seconds (case {outcome.slowest[1]}).",
        f"Largest growth {outcome.largest[0]:.0f} MiB (case {outcome.largest[1]}).",
        "",
    ]
    broken = [f"- {promise}: {len(cases)}, cases {cases[:100]}" for promise, cases in outcome.broken.items()]
    return "\n".join([*lines, "Broken promises:", "", *broken] if broken else [*lines, "No promise was broken."]) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=3600.0)
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--show", type=int)
    options.add_argument("--record", action="store_true", help="write records/DATE-fuzz.md")
    asked = options.parse_args()
    if asked.show is not None:
        entrance, content, name, mode = mutation.case(asked.show)
        print(f"{entrance.name}: {name!r} {mode}", file=sys.stderr)
        sys.stdout.buffer.write(content)
        return
    outcome = campaign.Outcome()
    with ThreadPoolExecutor(asked.processes) as pool:
        firsts = [asked.first + at * APART for at in range(asked.processes)]
        for seen in pool.map(lambda first: campaign.run(first, seconds=asked.seconds), firsts):
            outcome.add(seen)
    text = report(outcome, asked.seconds, asked.processes)
    print(text)
    if asked.record:
        (ROOT / "records" / f"{datetime.date.today()}-fuzz.md").write_text(text)
    sys.exit(1 if outcome.broken else 0)


if __name__ == "__main__":
    main()
