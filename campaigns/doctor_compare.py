"""What doctor says of many texts and of the fault matrix, recorded; and what changed between two such recordings.

    python campaigns/doctor_compare.py record OUT.json [--texts FOLDER ...] [--matrix]
    python campaigns/doctor_compare.py compare BEFORE.json AFTER.json

A folder holds *.yaml with `input`, and `cause` and `also_acceptable` where the cause is known. Recorded are verdict,
first three causes, and the severity of the first. A change is better or worse by the known cause, else only a change.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from gpudoc.doctor.examine import examine_text  # noqa: E402
from gpudoc.doctor.model import Report  # noqa: E402
from gpudoc.errors import GpudocError  # noqa: E402

HEALTHY = "healthy"
Row = dict[str, object]


def answer(report: Report) -> Row:
    first = report.findings[:1]
    return {
        "verdict": report.verdict,
        "causes": [finding.id for finding in report.findings[:3]],
        "severity": first[0].severity if first else "none",
        "crashed": [crash.id for crash in report.crashed],
    }


def record_texts(folder: Path) -> dict[str, Row]:
    rows = {}
    for path in sorted(folder.glob("*.yaml")):
        case = yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
        try:
            row = answer(examine_text([("report.txt", str(case["input"]).encode("utf-8", "replace"))]))
        except GpudocError as refused:
            row = {"verdict": "refused", "causes": [], "severity": str(refused), "crashed": []}
        known = [case["cause"], *(case.get("also_acceptable") or [])] if case.get("cause") else []
        rows[f"{folder.name}/{path.stem}"] = {**row, "known": known}
    return rows


def record_matrix() -> dict[str, Row]:
    from fault_matrix import judge

    from tests.fakes.scenarios import FAULTS, HEALTHY

    rows = {f"fault/{s.name}": {**answer(judge(s)), "known": [s.cause]} for s in FAULTS}
    return rows | {f"healthy/{s.name}": {**answer(judge(s)), "known": ["healthy"]} for s in HEALTHY}


def score(row: Row) -> int | None:
    """2: the known cause is first, 1: it is among three, 0: it is not; None where no cause is known."""
    known, causes = row["known"], row["causes"]
    assert isinstance(known, list)
    assert isinstance(causes, list)
    if not known:
        return None
    if known[0] == HEALTHY:
        return 2 if row["verdict"] in ("healthy", "warning") else 0
    return 2 if causes[:1] and causes[0] in known else 1 if set(causes) & set(known) else 0


def summary(rows: dict[str, Row]) -> str:
    groups: dict[str, Counter[object]] = {}
    for name, row in rows.items():
        groups.setdefault(name.split("/")[0], Counter())[score(row)] += 1
    told = []
    for group, counts in groups.items():
        known = counts.total() - counts[None]
        right = f": first {counts[2]}, among three {counts[2] + counts[1]} of {known}" if known else ""
        told.append(f"{group}: {counts.total()} texts{right}")
    return "\n".join(told)


def compare(before: dict[str, Row], after: dict[str, Row]) -> int:
    """Print each pair that differs; 1 when a known cause stands further down than before or something crashed."""
    marks: Counter[str] = Counter()
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            marks["in one recording only"] += 1
            continue
        fields = [key for key in ("verdict", "causes", "severity", "crashed") if old[key] != new[key]]
        if not fields:
            marks["same"] += 1
            continue
        was, now = score(old), score(new)
        mark = "changed" if was is None or now is None or was == now else "better" if now > was else "WORSE"
        mark = "CRASHED" if new["crashed"] else mark
        marks[mark] += 1
        said = "; ".join(f"{key}: {old[key]} -> {new[key]}" for key in fields)
        print(f"{mark:8} {name} {new['known'] or ''}: {said}")
    print(f"before:\n{summary(before)}\nafter:\n{summary(after)}\n{dict(marks)}")
    return 1 if marks["WORSE"] or marks["CRASHED"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("out", type=Path)
    recording.add_argument("--texts", type=Path, nargs="*", default=[])
    recording.add_argument("--matrix", action="store_true")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.command == "compare":
        return compare(json.loads(options.before.read_text()), json.loads(options.after.read_text()))
    rows: dict[str, Row] = {}
    for folder in options.texts:
        rows |= record_texts(folder)
    if options.matrix:
        rows |= record_matrix()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=1), "utf-8")
    print(summary(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
