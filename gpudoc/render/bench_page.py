"""A bench record as one self-contained page: curves, roofline, the table, the doubts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpudoc.bench.model import Ceiling, Measurement, NoCeiling, Record
from gpudoc.bench.report import Report
from gpudoc.render.bench import closing, doubts_text, figure, headline, parameters_text, row_name, share_text
from gpudoc.render.chart import Axis, Series, line_chart
from gpudoc.render.page import Block, Figure, Note, Section, Table, page, save_page
from gpudoc.units import format_bytes


def save(path: Path, report: Report) -> None:
    """Write the page; GpudocError when it cannot be written."""
    save_page(path, render_page(report))


def render_page(report: Report) -> str:
    """The page as text."""
    record = report.record
    sections = [
        Section("What is low, and why", tuple(_findings(record))),
        Section("Bandwidth by size", tuple(_curves(record))),
        Section("All figures", (_table(record),)),
        Section("Where the ceilings come from", tuple(_formulas(record))),
        Section("Doubts", tuple(_doubts(record))),
    ]
    kept = [section for section in sections if section.blocks]
    made = f"gpudoc {record.environment.get('gpudoc', '')}, torch {record.environment.get('torch', 'unknown')}"
    return page("gpudoc bench", kept, lead=f"{headline(record.environment)}. {closing(record)}.", foot=made)


def _findings(record: Record) -> Iterable[Block]:
    for finding in record.findings:
        commands = tuple(remedy.run for remedy in finding.fix if remedy.run)
        points = tuple(remedy.say for remedy in finding.fix)
        yield Note(kind=finding.severity, title=finding.title, text=finding.why, points=points, commands=commands)


def _curves(record: Record) -> Iterable[Block]:
    rows = [row for row in record.measurements if row.name == "memory_curve" and row.value]
    if len(rows) > 1:
        points = tuple((float(row.parameters["bytes"]), row.value or 0.0) for row in rows)
        axis = Axis(label="bytes copied", log=True, tick=format_bytes, base=2)
        svg = line_chart(
            "Memory copy by size", [Series(name="copy, all threads", points=points)], axis, Axis(label="GB/s")
        )
        yield Figure(svg, "Small sizes fit in a cache; the right end is main memory.")


def _table(record: Record) -> Table:
    headings = ("measured", "with", "value", "unit", "p10", "p90", "ceiling", "share", "doubts")
    return Table(
        headings=headings,
        rows=tuple(_row(row) for row in record.measurements),
        numeric=frozenset({"value", "p10", "p90", "ceiling", "share"}),
    )


def _row(row: Measurement) -> tuple[str, ...]:
    value = "refused" if row.value is None else figure(row.value)
    match row.ceiling:
        case Ceiling(top, _, _):
            ceiling = figure(top)
        case NoCeiling():
            ceiling = ""
    return (
        row.name,
        parameters_text(row.parameters),
        value,
        row.unit,
        figure(row.p10),
        figure(row.p90),
        ceiling,
        share_text(row),
        doubts_text(row, verbose=True),
    )


def _formulas(record: Record) -> Iterable[Block]:
    rows = []
    for row in record.measurements:
        match row.ceiling:
            case Ceiling(value, formula, _):
                rows.append((row_name(row), f"{figure(value)} {row.unit}", formula))
            case NoCeiling(because):
                rows.append((row_name(row), "none", because))
    if rows:
        yield Table(headings=("row", "ceiling", "from"), rows=tuple(rows), numeric=frozenset({"ceiling"}))


def _doubts(record: Record) -> Iterable[Block]:
    doubtful = [row for row in record.measurements if row.doubts]
    for row in doubtful:
        points = tuple(doubt.text for doubt in row.doubts)
        yield Note(kind="warning", title=row_name(row), points=points)
    if not doubtful:
        yield "Nothing speaks against these figures."
