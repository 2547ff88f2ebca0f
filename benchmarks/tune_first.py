"""Seconds until `gpudoc tune -- COMMAND` proposes its first settings, for a script whose launch takes ten seconds.

    python benchmarks/tune_first.py [--imports 10] [--budgets 60,300] [--interrupt] [--record FILE]

The script waits before its first step as long as slow imports do, and its data wait for each sample. The clock is that
of this process: it stamps each line of the command's output. With `--interrupt`, SIGTERM comes once something
was proposed, and the file written then is read. Everything is made in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from in_parts import Parts
from tune_budget import ROOT, Work

PROPOSAL = re.compile(r"so far: (num_workers \d+), about ([\d.]+) times")


def search(work: Work, *, is_interrupted: bool) -> dict[str, object]:
    """When each proposal came, when the command ended, and what it wrote."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {**os.environ, "XDG_DATA_HOME": name, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        began = time.monotonic()
        out = folder / "out.json"
        proposals: list[tuple[float, str, float]] = []
        with out.open("wb") as answer:
            process = subprocess.Popen(
                [sys.executable, "-m", "gpudoc", *work.write(folder)],
                cwd=folder,
                env=environment,
                stdout=answer,
                stderr=subprocess.PIPE,
                text=True,
            )
            for line in process.stderr:
                match = PROPOSAL.search(line)
                if match is None:
                    continue
                proposals.append((round(time.monotonic() - began, 1), match[1], float(match[2])))
                if is_interrupted and len(proposals) == 1:
                    process.terminate()
            code = process.wait()
        took_s = time.monotonic() - began
        try:
            told = json.loads(out.read_text())
        except ValueError:
            told = {}
    profile = told.get("profile") or {}
    return {
        "budget_s": work.budget_s,
        "interrupted": is_interrupted,
        "proposals": proposals,
        "took_s": round(took_s, 1),
        "code": code,
        "said": (told.get("answer") or {}).get("kind"),
        "workers": ((profile.get("settings") or {}).get("loader") or {}).get("num_workers"),
        "gain": (told.get("script") or {}).get("gain"),
    }


def table(rows: list[dict]) -> list[str]:
    """One line for each search."""
    lines = ["| budget | SIGTERM | proposed: after s, what, times its speed | ended | code | said | workers | gain |"]
    lines.append("|" + "---|" * 8)
    for row in rows:
        said = "; ".join(f"{at} s: {what}, {times:.2f}" for at, what, times in row["proposals"]) or "nothing"
        gain = f"{row['gain']['ratio']:.2f}" if row["gain"] else ""
        stopped = "yes" if row["interrupted"] else ""
        lines.append(
            f"| {row['budget_s']} s | {stopped} | {said} | {row['took_s']} s | {row['code']} | {row['said']} | "
            f"{row['workers']} | {gain} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--imports", type=float, default=10.0, help="seconds before the script's first step")
    parser.add_argument("--budgets", default="60,300", help="seconds")
    parser.add_argument("--interrupt", action="store_true")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    parts = Parts(None)
    for budget in options.budgets.split(","):
        work = Work("script", True, budget_s=int(budget), sample_s=0.005, imports_s=options.imports)
        parts.add(**search(work, is_interrupted=options.interrupt))
        print(table(parts.rows)[-1], flush=True)
    if options.record:
        head = f"{parts.about()}; python benchmarks/tune_first.py --imports {options.imports:g}"
        options.record.write_text("\n".join([head, "", *table(parts.rows), ""]))


if __name__ == "__main__":
    main()
