"""Every Xid and SXid of the catalogue as one line of a kernel log in a file: what doctor answers.

python campaigns/xid_verdicts.py            prints it and writes records/<date>-xid-verdicts.md
"""

from __future__ import annotations

import collections
import datetime
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpudoc.doctor.diagnose import diagnose  # noqa: E402
from gpudoc.doctor.model import Evidence  # noqa: E402
from gpudoc.facts.readers import read  # noqa: E402
from gpudoc.knowledge.xids import all_sxids, all_xids  # noqa: E402

XID = "[ 900.5] NVRM: Xid (PCI:0000:11:00): {}, pid=1234, name=python"
SXID = "[ 900.5] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): {}, Link 28 something"


def answer(line: str) -> tuple[str, str]:
    """(verdict, first cause) of one line."""
    reading = read(line)
    report = diagnose(Evidence(source="file", machine=reading.machine, reading=reading))
    return report.verdict, report.findings[0].id if report.findings else "none"


def main() -> None:
    rows, verdicts = [], collections.Counter()
    for kind, line, table in (("Xid", XID, all_xids()), ("SXid", SXID, all_sxids())):
        for row in table:
            verdict, cause = answer(line.format(row.code))
            verdicts[kind, verdict] += 1
            cells = (f"{kind} {row.code}", row.name, row.kind, row.severity, row.action, verdict, cause)
            rows.append(f"| {' | '.join(cells)} |")
    for kind, line in (("Xid", XID), ("SXid", SXID)):
        rows.append(f"| {kind} 99999 | not in the catalogue | | | | {answer(line.format(99999))[0]} | |")
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    today = datetime.date.today().isoformat()
    counts = ", ".join(f"{count} {kind}s {verdict}" for (kind, verdict), count in sorted(verdicts.items()))
    head = f"# Xids and SXids: what doctor answers, {today}, commit {commit.stdout.strip()}\n\n{counts}.\n\n"
    table = "| number | name | whose fault | severity | NVIDIA's action | verdict in a file | first cause |\n"
    text = f"{head}{table}|---|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
    (ROOT / "records" / f"{today}-xid-verdicts.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
