"""A bench record in a few lines: the figures that matter for training, the problems, and how far to trust it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpudoc.bench.model import Measurement, Record
from gpudoc.bench.report import BenchReport
from gpudoc.doctor.model import Finding
from gpudoc.facts.redact import private
from gpudoc.render import frame
from gpudoc.render.bench import (
    closing,
    figure,
    headline,
    parameters_text,
    print_comparison,
    print_record,
    report_to_json,
    share_text,
)
from gpudoc.render.console import print_json, stdout
from gpudoc.render.frame import MARK, PASSED, Form, box, fold
from gpudoc.render.gpus import text_table
from gpudoc.render.table import Table
from gpudoc.units import format_count

MOST_ROWS = 5
# a table for a file or a pipe need not fold at 80 columns
_PIPE_WIDTH = 150
# the figures that limit a training step, the most telling first, with their names on the screen
_FIGURES = (
    ("soak_start", "bf16", "soak, its begin"),
    ("soak_end", "bf16", "soak, its end"),
    ("soak_start", "fp16", "soak, its begin"),
    ("soak_end", "fp16", "soak, its end"),
    ("matmul", "bf16", "matmul"),
    ("device_copy", "", "GPU memory copy"),
    ("h2d", "", "copy to the GPU"),
    ("folder_read", "", "reading the folder"),
    ("all_reduce", "", "all-reduce"),
    ("loader_batch", "", "loader batch"),
    ("cpu_matmul", "bf16", "matmul"),
    ("memory_copy", "", "memory copy"),
    ("cpu_matmul", "fp32", "matmul"),
    ("cpu_clock", "", "CPU clock"),
)
_HEADINGS = ("measured", "value", "unit", "±", "of ceiling", "doubt")


def show(report: BenchReport, *, as_json: bool, plain: bool, verbose: bool, drawn: bool = False) -> None:
    """Print the report as one JSON document, a few lines, or in full if `verbose`; `drawn` if it is on a page too."""
    if as_json:
        print_json(private(report_to_json(report)))
        return
    out = stdout(plain)
    if not out.is_terminal:
        out.width = _PIPE_WIDTH
    if verbose:
        print_record(report.record, out)
    else:
        frame.show(as_text(report.record, frame.form(plain, piped=frame.WIDE), drawn=drawn), plain=plain)
    if report.comparison is not None:
        print_comparison(report.comparison, out)


def as_text(record: Record, shape: Form, *, drawn: bool = False) -> str:
    """The summary: at most five figures, every finding, and the rest of the record in words; `drawn` as in `show`."""
    lines = fold(headline(record.environment), shape.width)
    rows = figures(record.measurements)
    if rows:
        cells = tuple(_cells(row, label) for row, label in rows)
        table = Table(headings=_HEADINGS, rows=cells, numeric=frozenset(("value", "±", "of ceiling")))
        lines += ["", *text_table(table, shape.width), ""]
    for missing in (one for one in record.not_measured if one.failed):
        lines += fold(f"{MARK['warning']} failed: {missing.case}: {missing.because}", shape.width)
    for finding in record.findings:
        lines += box(_finding(finding, shape.inner), shape)
    mark = "" if record.findings or record.interrupted or not record.measurements else f"{PASSED} "
    lines += fold(f"{mark}{closing(record)}", shape.width)
    lines += fold(_rest(record, len(rows), drawn=drawn), shape.width)
    return "\n".join(lines) + "\n"


def figures(rows: Sequence[Measurement]) -> list[tuple[Measurement, str]]:
    """The best row of each kind that matters, at most five, with its name; and all refused rows."""
    best: dict[tuple[str, str], Measurement] = {}
    for row in rows:
        kind = (row.name, str(row.parameters.get("dtype", "")))
        if row.value is not None and (kind not in best or _is_better(row, best[kind])):
            best[kind] = row
    told = [(best[name, dtype], label) for name, dtype, label in _FIGURES if (name, dtype) in best]
    named = {id(row) for row, _ in told}
    # a run of only other cases has figures too
    told += [(row, row.name.replace("_", " ")) for row in best.values() if id(row) not in named]
    refused = [(row, row.name.replace("_", " ")) for row in rows if row.value is None]
    return [*told[:MOST_ROWS], *refused]


def _is_better(row: Measurement, other: Measurement) -> bool:
    one, two = row.value or 0.0, other.value or 0.0
    return one < two if row.better == "lower" else one > two


def _cells(row: Measurement, label: str) -> tuple[str, ...]:
    name = ", ".join(part for part in (label, parameters_text(row.parameters)) if part)
    doubt = row.doubts[0].text if row.doubts else ""
    if row.value is None:
        return name, "refused", "", "", "", doubt
    apart = max(row.high - row.value, row.value - row.low) / row.value if row.value else 0.0
    # a spread above the figure itself makes the figure worthless, so its exact size does not matter
    spread = f"{apart:.0%}" if apart <= 1 else "> 100%"
    return name, figure(row.value), row.unit, spread, share_text(row), doubt


def _finding(finding: Finding, width: int) -> list[str]:
    lines = fold(f"{MARK[finding.severity]} {finding.title}", width)
    for seen in finding.evidence[:2]:
        lines += fold(f"  seen: {seen.fact}: {seen.value}", width, indent="        ", most=2)
    for remedy in finding.fix[:2]:
        lines += fold(f"  fix: {remedy.say}", width, indent="       ", most=2)
        lines += [f"    $ {part}" for part in remedy.run.splitlines()]
    return lines


def _rest(record: Record, shown: int, *, drawn: bool) -> str:
    """The parts that the summary leaves out: rows, doubts and cases that were not measured."""
    parts = [f"{len(record.measurements) - shown} more rows"] if len(record.measurements) > shown else []
    doubted = Counter(doubt.id for row in record.measurements for doubt in row.doubts)
    if doubted:
        worst = ", ".join(name.replace("_", " ") for name, _ in doubted.most_common(2))
        count = sum(bool(row.doubts) for row in record.measurements)
        parts.append(f"{count} of {len(record.measurements)} rows in doubt, mostly because of: {worst}")
    left_out = sum(not one.failed for one in record.not_measured)
    if left_out:
        parts.append(f"{format_count(left_out, 'case')} not measured")
    ways = "--verbose shows them" if drawn else "--verbose shows them, --html FILE draws them"
    return f"{'; '.join(parts)}: {ways}" if parts else ""
