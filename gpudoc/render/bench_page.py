"""A bench record as one self-contained page: causes, curves, roofline, table, sources of the ceilings, doubts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gpudoc.bench.compare import Comparison
from gpudoc.bench.model import Ceiling, Measurement, NoCeiling, Record
from gpudoc.bench.report import BenchReport
from gpudoc.render.bench import (
    closing,
    doubt_lines,
    doubts_text,
    figure,
    headline,
    parameters_text,
    row_name,
    share_text,
)
from gpudoc.render.chart import Axis, Series, line_chart
from gpudoc.render.doctor_page import note_of
from gpudoc.render.page import Badge, Block, Figure, Fold, Note, Number, Section, page, save_page
from gpudoc.render.table import Table
from gpudoc.units import format_bytes

# arithmetic intensity of a square product of n x n: 2 n^3 operations over three matrices read or written once
_ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
# measured over many sizes
_CURVES = ("memory_curve", "h2d", "d2h", "bidirectional")
_COPY_NAMES = {"h2d": "host to GPU", "d2h": "GPU to host", "bidirectional": "both at once, sum"}


def save(path: Path, report: BenchReport) -> None:
    """Write the page; GpudocError if it cannot be written."""
    save_page(path, render_page(report))


def render_page(report: BenchReport) -> str:
    """The page as text."""
    record = report.record
    sections = [
        Section("What is low, and why", tuple(_findings(record))),
        Section("Compared with the old record", tuple(_changes(report.comparison))),
        Section("Bandwidth by size", tuple(_curves(record))),
        Section("Roofline", tuple(_rooflines(record))),
        Section("All figures", tuple(_tables(record))),
        Section("Doubts", tuple(_doubts(record))),
        Section("Behind the figures", (*_formulas(record), *_missing(record), _machine(record))),
    ]
    kept = [section for section in sections if section.blocks]
    made = f"gpudoc {record.environment.get('gpudoc', '')}, torch {record.environment.get('torch', 'unknown')}"
    return page(
        "gpudoc bench",
        kept,
        lead=f"{headline(record.environment)}. {closing(record)}.",
        foot=made,
        badge=_badge(report),
        numbers=list(_numbers(record)),
    )


def _badge(report: BenchReport) -> Badge:
    findings = report.record.findings
    slower = len(report.comparison.regressions) if report.comparison is not None else 0
    if any(finding.severity == "broken" for finding in findings):
        return Badge("broken", "broken")
    if slower:
        return Badge("broken", f"{slower} slower")
    if not report.record.measurements:
        return Badge("warning", "nothing measured")
    return Badge("warning", "low") if findings else Badge("good", "nothing below normal")


def _numbers(record: Record) -> Iterable[Number]:
    """The best row of each kind that people ask for first: products, memory, copies to and from the GPU, all-reduce."""
    kinds = {
        "matrix product": ("matmul", "cpu_matmul"),
        "memory": ("device_copy", "device_triad", "memory_copy", "memory_triad"),
        "host to GPU": ("h2d",),
        "GPU to host": ("d2h",),
        "all-reduce": ("all_reduce",),
    }
    for label, names in kinds.items():
        # a GPU's row stands before the CPU's of the same kind
        rows = [row for name in names for row in record.measurements if row.name == name and row.value is not None]
        rows = [row for row in rows if row.device == rows[0].device]
        if rows:
            best = max(rows, key=lambda row: row.value or 0.0)
            share = best.share_of_ceiling
            what = parameters_text(best.parameters)
            remark = f"{share:.0%} of the ceiling; {what}" if share is not None else what
            yield Number(label, figure(best.value or 0.0), best.unit, remark)


def _findings(record: Record) -> Iterable[Block]:
    for finding in record.findings:
        yield note_of(finding)
    if not record.findings:
        judged = [row for row in record.measurements if row.share_of_ceiling is not None]
        text = f"{len(judged)} of {len(record.measurements)} rows have a ceiling to judge them by."
        yield Note(kind="good", title="Nothing is below normal", text=text)


def _changes(comparison: Comparison | None) -> Iterable[Block]:
    if comparison is None:
        return
    moved = [change for change in comparison.changes if change.judgement in ("slower", "doubtful", "faster")]
    same = sum(change.judgement == "same" for change in comparison.changes)
    counts = {kind: sum(change.judgement == kind for change in moved) for kind in ("slower", "doubtful", "faster")}
    yield ", ".join(f"{count} {kind}" for kind, count in counts.items()) + f", {same} the same."
    if moved:
        rows = [
            (row_name(one.row), one.judgement, f"{(one.ratio or 0) - 1:+.0%}", _span(one.old), _span(one.row))
            for one in moved
        ]
        yield Table(headings=("row", "judgement", "by", "old", "new"), rows=tuple(rows), numeric=frozenset({"by"}))
    yield from (f"Also different: {difference}." for difference in comparison.different)


def _span(row: Measurement) -> str:
    return f"{figure(row.low)} to {figure(row.high)} {row.unit}"


def _curves(record: Record) -> Iterable[Block]:
    axis = Axis(label="bytes copied", log=True, tick=format_bytes, base=2)
    caches = _points(row for row in record.measurements if row.name == "memory_curve")
    if len(caches) > 1:
        svg = line_chart("CPU memory copy", [Series(name="all threads", points=caches)], axis, Axis(label="GB/s"))
        if svg:
            yield Figure(svg, "Small sizes fit in a cache; the right end is main memory.")
    copies = []
    for host in ("pinned", "pageable"):
        for name, words in _COPY_NAMES.items():
            rows = [one for one in record.measurements if one.name == name and one.parameters.get("host") == host]
            points = _points(rows)
            if points:
                copies.append(
                    Series(name=f"{words}, {host}", points=points, style="line" if len(points) > 1 else "points")
                )
    if copies:
        tops = [
            row.ceiling.value for row in record.measurements if row.name == "h2d" and isinstance(row.ceiling, Ceiling)
        ]
        if tops:
            ends = (min(x for one in copies for x, _ in one.points), max(x for one in copies for x, _ in one.points))
            copies.append(Series(name="link", points=tuple((x, tops[0]) for x in ends), style="roof"))
        svg = line_chart("Copies between host and GPU", copies, axis, Axis(label="GB/s"))
        if svg:
            yield Figure(
                svg, "Pinned means page-locked memory; the dashed line is the capacity of the link in one direction."
            )


def _points(rows: Iterable[Measurement]) -> tuple[tuple[float, float], ...]:
    points = [(float(row.parameters["bytes"]), row.value) for row in rows if row.value is not None]
    return tuple(sorted((size, value) for size, value in points if value is not None))


def _rooflines(record: Record) -> Iterable[Block]:
    for device in dict.fromkeys(row.device for row in record.measurements):
        rows = [row for row in record.measurements if row.device == device]
        chart = _roofline(rows)
        if chart:
            yield Figure(
                chart,
                "Left of a roof's bend a program waits for memory, right of it for the compute units. The flat part "
                "is the ceiling of the type; the slope is the ceiling of the memory or, if that is unknown, the "
                "best measured value. The intensity of a product counts each matrix once.",
            )


def _roofline(rows: Sequence[Measurement]) -> str:
    bandwidth = _memory_gb_per_s(rows)
    products = [row for row in rows if row.name in ("matmul", "cpu_matmul") and row.value is not None]
    if bandwidth is None or not products:
        return ""
    is_tera = products[0].unit.startswith("T")
    slope = bandwidth / 1e3 if is_tera else bandwidth
    series = []
    right = max(_intensity(row) for row in products) * 2
    for hue, dtype in enumerate(dict.fromkeys(str(row.parameters["dtype"]) for row in products)):
        same = [row for row in products if row.parameters["dtype"] == dtype]
        series.append(
            Series(
                name=f"{dtype} measured",
                points=tuple((_intensity(row), row.value or 0.0) for row in same),
                style="points",
                hue=hue,
            )
        )
        tops = [row.ceiling.value for row in same if isinstance(row.ceiling, Ceiling)]
        if tops:
            bend = max(tops) / slope
            roof = ((1.0, slope), (bend, max(tops)), (max(right, bend * 2), max(tops)))
            series.append(Series(name=f"{dtype} roof", points=roof, style="roof", hue=hue))
    x = Axis(label="operations per byte", log=True)
    y = Axis(label=f"10{'¹²' if is_tera else '⁹'} operations/s", log=True, tick=figure)
    device = rows[0].device
    title = f"Roofline of {'the CPU' if device == 'cpu' else device}"
    # one product under its roof is enough for a chart
    return line_chart(title, series, x, y, fewest_places=1)


def _memory_gb_per_s(rows: Sequence[Measurement]) -> float | None:
    """The memory's ceiling if it is known, else the best value measured on it; None without either."""
    memory = [row for row in rows if row.name.startswith(("memory_", "device_")) and row.name != "memory_curve"]
    ceilings = [row.ceiling.value for row in memory if isinstance(row.ceiling, Ceiling)]
    return max(ceilings or [row.value for row in memory if row.value is not None], default=None)


def _intensity(row: Measurement) -> float:
    size = row.parameters.get("size")
    sides = [float(size)] * 3 if size is not None else [float(one) for one in str(row.parameters["shape"]).split("x")]
    rows, columns, depth = sides
    element = _ELEMENT_BYTES.get(str(row.parameters["dtype"]), 0)
    return (
        2 * rows * columns * depth / (element * (rows * depth + depth * columns + rows * columns)) if element else 0.0
    )


def _tables(record: Record) -> Iterable[Block]:
    """The table of rows; the many rows of the curves are folded."""
    curves = [row for row in record.measurements if row.name in _CURVES]
    yield _table([row for row in record.measurements if row.name not in _CURVES] or curves)
    if len(curves) < len(record.measurements) and curves:
        yield Fold("All sizes of the curves", (_table(curves),), f"{len(curves)} rows")


def _table(measurements: Sequence[Measurement]) -> Table:
    headings = ("measured", "with", "value", "unit", "p10", "p90", "ceiling", "share", "doubts")
    return Table(
        headings=headings,
        rows=tuple(_row(row) for row in measurements),
        numeric=frozenset({"value", "p10", "p90", "ceiling", "share"}),
        shares=frozenset({"share"}),
    )


def _row(row: Measurement) -> tuple[str, ...]:
    value = "refused" if row.value is None else figure(row.value)
    match row.ceiling:
        case Ceiling(top, _, _):
            ceiling = figure(top)
        case NoCeiling():
            ceiling = ""
    cells = (row.name, parameters_text(row.parameters), value, row.unit, figure(row.p10), figure(row.p90))
    return (*cells, ceiling, share_text(row), doubts_text(row))


def _formulas(record: Record) -> Iterable[Block]:
    rows: dict[tuple[str, str, str], None] = {}
    for row in record.measurements:
        match row.ceiling:
            case Ceiling(value, formula, _):
                rows[row_name(row), f"{figure(value)} {row.unit}", formula] = None
            case NoCeiling(because):
                rows[row.name, "none", because] = None
    if rows:
        table = Table(headings=("row", "ceiling", "from"), rows=tuple(rows))
        yield Fold("Where the ceilings come from", (table,), f"{len(rows)} rows")


def _doubts(record: Record) -> Iterable[Block]:
    lines = doubt_lines(record)
    if lines:
        yield Note(kind="warning", title="Reasons to doubt these figures", points=tuple(lines))
    else:
        yield Note(kind="good", title="There is no reason to doubt these figures")


def _missing(record: Record) -> Iterable[Block]:
    rows = [(one.case, "failed" if one.failed else "not measured", one.because) for one in record.not_measured]
    if rows:
        table = Table(headings=("case", "", "because"), rows=tuple(rows))
        yield Fold("Not measured", (table,), str(len(rows)))


def _machine(record: Record) -> Fold:
    rows = tuple((key.replace("_", " "), str(value)) for key, value in record.environment.items())
    return Fold("The machine", (Table(headings=("", "value"), rows=rows),))
