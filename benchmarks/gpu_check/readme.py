"""README's rows about real GPUs, made from the records of gpu-check.

python -m benchmarks.gpu_check.readme           # exit status 1 where README says something else
python -m benchmarks.gpu_check.readme --write
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.gpu_check.keeping import records
from benchmarks.gpu_check.model import Record

ROOT = Path(__file__).resolve().parents[2]
FIRST = "| a real GPU"
PLAN = "[`make gpu-check`](docs/gpu-check.md) runs the acceptance plan on one and writes a record"
NOTHING = f"{FIRST} | nothing yet; {PLAN} |"


def rows(kept: Iterable[tuple[Path, Record]]) -> Iterator[str]:
    """A row for the newest record of each card and driver; one row where there is no record of a real GPU."""
    newest: dict[tuple[str, str], tuple[Path, Record]] = {}
    for path, record in kept:
        if not record.is_standin and record.machine.get("gpus"):
            newest[str(record.machine["gpu0.name"]), str(record.machine.get("driver", "not known"))] = (path, record)
    for (card, driver), (path, record) in sorted(newest.items()):
        passed = [one for one in record.outcomes if one.state == "passed"]
        ran = [one for one in record.outcomes if one.state != "left out"]
        failed = f"; did not pass: {', '.join(record.failed)}" if record.failed else ""
        what = f"{len(passed)} of {len(ran)} steps passed on {record.began[:10]}{failed}"
        torch = record.machine.get("torch", "not known")
        link = os.path.relpath(path, ROOT)
        yield f"{FIRST}: {card}, driver {driver}, PyTorch {torch} | {what} ([record]({link})) |"
    if not newest:
        yield NOTHING


def replaced(text: str, lines: Iterable[str]) -> str:
    """README with these rows where it has rows of real GPUs; ValueError where it has none."""
    new, count = re.subn(rf"(?m)(^{re.escape(FIRST)}.*\n)+", lambda _: "".join(f"{line}\n" for line in lines), text)
    if count != 1:
        raise ValueError(f"README has {count} places with rows that begin with {FIRST!r}")
    return new


def main() -> None:
    path = ROOT / "README.md"
    text = path.read_text("utf-8")
    new = replaced(text, list(rows(records())))
    if "--write" in sys.argv:
        path.write_text(new, "utf-8")
    elif new != text:
        sys.exit(
            "README's rows about real GPUs are not those of the records: python -m benchmarks.gpu_check.readme --write"
        )


if __name__ == "__main__":
    main()
