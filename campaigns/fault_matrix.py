"""The fault matrix as a table: each machine of tests/fakes/scenarios.py, the cause that must come first, what came.

python campaigns/fault_matrix.py            prints it and writes records/<date>-fault-matrix.md
"""

from __future__ import annotations

import argparse
import datetime
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpudoc.doctor.diagnose import diagnose  # noqa: E402
from gpudoc.doctor.model import Evidence, Report  # noqa: E402
from gpudoc.facts.readers import intake  # noqa: E402
from tests.fakes.machine import FakeMachine  # noqa: E402
from tests.fakes.scenarios import FAULTS, HEALTHY, Scenario  # noqa: E402


def judge(scenario: Scenario) -> Report:
    with tempfile.TemporaryDirectory(prefix="gpudoc-matrix-") as folder:
        machine = FakeMachine(Path(folder) / "machine")
        scenario.build(machine)
        facts = machine.collect(deadlines=scenario.deadlines)
    reading = intake.read_machine(facts)
    return diagnose(Evidence(source="machine", machine=facts, reading=reading, expectation=scenario.expectation))


def fault_row(scenario: Scenario) -> tuple[bool, str]:
    report = judge(scenario)
    first = report.findings[0] if report.findings else None
    right = first is not None and (first.id, first.severity) == (scenario.cause, scenario.severity)
    seen = f"{first.id} ({first.severity}, {first.confidence:.2f})" if first else "nothing"
    others = ", ".join(finding.id for finding in report.findings[1:]) or "-"
    return right, f"| {scenario.name} | {scenario.cause} ({scenario.severity}) | {seen} | {others} | {mark(right)} |"


def healthy_row(scenario: Scenario) -> tuple[bool, str]:
    report = judge(scenario)
    bad = [finding.id for finding in report.findings if finding.severity != "info"]
    info = ", ".join(finding.id for finding in report.findings if finding.severity == "info") or "-"
    skipped = {skip.id for skip in report.skipped}
    right = not bad and report.verdict == "healthy" and not report.crashed and scenario.skips in (None, skipped)
    left = "open" if scenario.skips is None else ", ".join(sorted(scenario.skips)) or "none"
    checked = f"{len(report.passed)} passed, {len(skipped)} not checked"
    row = (scenario.name, report.verdict, ", ".join(bad) or "none", info, checked, left, mark(right))
    return right, f"| {' | '.join(row)} |"


def mark(right: bool) -> str:
    return "yes" if right else "**no**"


def told(row: tuple[bool, str]) -> tuple[bool, str]:
    print(row[1], flush=True)
    return row


def machine_line() -> str:
    info = Path("/proc/cpuinfo").read_text()
    model = next((line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")), "?")
    return f"{model}, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def commit() -> str:
    answer = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="those machines only whose name contains this; writes no record")
    parser.add_argument("--no-record", action="store_true", help="print only")
    options = parser.parse_args()
    faults = [told(fault_row(scenario)) for scenario in FAULTS if options.only in scenario.name]
    healthy = [told(healthy_row(scenario)) for scenario in HEALTHY if options.only in scenario.name]
    right, well = sum(ok for ok, _ in faults), sum(ok for ok, _ in healthy)
    summary = (
        f"{right} of {len(faults)} faults: the expected cause and severity first; "
        f"{well} of {len(healthy)} healthy machines without a finding above info; "
        f"{sum(s.skips is not None for s in HEALTHY)} of them name the checks that may be left out, and no other was."
    )
    print(summary)
    today = datetime.date.today().isoformat()
    made = f"{today}, commit {commit()}, {machine_line()}. Made by `python campaigns/fault_matrix.py`."
    real = "Driver libraries, /proc, /sys, /dev and torch are fakes; workers, deadlines and judgement are real."
    head = ["# Fault matrix", "", made, real, "", summary, "", "## Faults", ""]
    columns = ["| machine | expected first | found first | also | right |", "|---|---|---|---|---|"]
    well_columns = [
        "| machine | verdict | above info | info | checks | may be left out | right |",
        "|---|---|---|---|---|---|---|",
    ]
    lines = [*head, *columns, *(line for _, line in faults), "", "## Healthy", "", *well_columns]
    lines += [*(line for _, line in healthy), ""]
    if not options.no_record and not options.only:
        place = ROOT / "records" / f"{today}-fault-matrix.md"
        place.parent.mkdir(exist_ok=True)
        place.write_text("\n".join(lines), "utf-8")
    return 0 if (right, well) == (len(faults), len(healthy)) else 1


if __name__ == "__main__":
    sys.exit(main())
