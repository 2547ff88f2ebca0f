"""A bench record in words: each row with its ceiling and its doubts, and the changes since an older record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from gpudoc.bench.assess import MEANINGS
from gpudoc.bench.compare import Comparison
from gpudoc.bench.documents import record_to_json
from gpudoc.bench.model import Ceiling, Measurement, NoCeiling, Parameter, Record
from gpudoc.bench.report import BenchReport
from gpudoc.doctor.model import Finding
from gpudoc.units import format_bytes, format_count, format_seconds

KINDS = ("slower", "doubtful", "faster", "same", "not compared")


def report_to_json(report: BenchReport) -> dict[str, object]:
    """The record's document, with `comparison` if an old record was given."""
    document = record_to_json(report.record)
    if report.comparison is not None:
        changes = [
            {
                "row": change.row.key,
                "old": change.old.value,
                "new": change.row.value,
                "ratio": change.ratio,
                "judgement": change.judgement,
                "because": change.because,
            }
            for change in report.comparison.changes
        ]
        document["comparison"] = {"changes": changes, "different": list(report.comparison.different)}
    return document


def print_comparison(comparison: Comparison, out: Console) -> None:
    """Print the rows that moved beyond both intervals, the number of the others, and other differences."""
    counts = {kind: [c for c in comparison.changes if c.judgement == kind] for kind in KINDS}
    summary = ", ".join(f"{len(rows)} {kind}" for kind, rows in counts.items() if rows or kind in ("slower", "same"))
    out.print(f"\ncompared with the old record: {summary} (beyond both intervals)")
    for difference in comparison.different:
        out.print(f"  also different: {difference}")
    for kind, style in (("slower", "red"), ("doubtful", "yellow"), ("faster", "green")):
        for change in counts[kind]:
            old, new = change.old, change.row
            spans = f"[{figure(old.low)}, {figure(old.high)}] → [{figure(new.low)}, {figure(new.high)}] {new.unit}"
            while_ = f" while {change.because}" if change.because else ""
            out.print(f"  {kind}: {row_name(new)}: {(change.ratio or 0) - 1:+.0%}, {spans}{while_}", style=style)
    missing = len(comparison.only_old) + len(comparison.only_new)
    if missing:
        out.print(f"  {missing} rows are in only one of the records")


def print_record(record: Record, out: Console) -> None:
    """Print the whole record: a table of the rows, the cases that were not measured, and the causes of low values."""
    out.print(headline(record.environment))
    out.print(_screen_table(record))
    for formula in formulas(record):
        out.print(formula)
    for line in doubt_lines(record):
        out.print(f"doubt: {line}")
    for missing in record.not_measured:
        word = "failed" if missing.failed else "not measured"
        out.print(f"{word}: {missing.case}: {missing.because}")
    for finding in record.findings:
        _print_finding(finding, out)
    out.print(closing(record))


def headline(environment: Mapping[str, Parameter]) -> str:
    """The measured device: its name, its size, and the version of torch."""
    threads = environment.get("threads", "?")
    cpu = f"{environment.get('cpu', 'unknown CPU')}, {threads} threads, {environment.get('memory_gib', '?')} GiB"
    if environment.get("device") == "cuda":
        gpu = f"{environment.get('gpu')}, {environment.get('gpu_memory_gib')} GiB, compute capability"
        return f"{gpu} {environment.get('capability')}; {cpu}; torch {environment.get('torch', 'unknown')}"
    return f"{cpu}; torch {environment.get('torch', 'unknown')}; {environment.get('mode')} run on the CPU"


def closing(record: Record) -> str:
    """One sentence: how many rows, how long, and whether anything is low; no verdict if nothing was measured."""
    if not record.measurements and not record.findings:
        return (
            f"{'interrupted: ' if record.interrupted else ''}nothing was measured in {format_seconds(record.seconds)}"
        )
    rows, low = len(record.measurements), len(record.findings)
    verdict = format_count(low, "finding") if low else "nothing below normal"
    cut = "interrupted: " if record.interrupted else ""
    return f"{cut}{format_count(rows, 'row')} in {format_seconds(record.seconds)}; {verdict}"


def formulas(record: Record) -> list[str]:
    """The formula of the highest ceiling of each kind of row, with its source, and why other rows have none."""
    highest: dict[str, tuple[float, str]] = {}
    without: dict[str, str] = {}
    for row in record.measurements:
        kind = f"{row.name} {row.parameters.get('dtype', '')}".strip()
        match row.ceiling:
            case Ceiling(value, formula, _):
                if value > highest.get(kind, (0.0, ""))[0]:
                    highest[kind] = (value, f"{figure(value)} {row.unit}: {formula}")
            case NoCeiling(because):
                without[kind] = f"no ceiling for {kind}: {because}"
    alike: dict[str, list[str]] = {}
    for kind, (_, text) in highest.items():
        alike.setdefault(text, []).append(kind)
    texts = [f"ceiling of {', '.join(kinds)}, {text}" for text, kinds in alike.items()]
    return texts + list(without.values())


def doubt_lines(record: Record) -> list[str]:
    """The meaning of each kind of doubt in this record, with the number of rows that have it."""
    counts = Counter(doubt.id for row in record.measurements for doubt in row.doubts)
    return [
        f"{id_.replace('_', ' ')} ({format_count(count, 'row')}): {MEANINGS.get(id_, '')}"
        for id_, count in counts.most_common()
    ]


def row_name(row: Measurement) -> str:
    """The row as people say it: 'matmul bf16 1024, 2 threads'."""
    return f"{row.name} {parameters_text(row.parameters)}".strip()


def parameters_text(parameters: Mapping[str, Parameter]) -> str:
    """The parameters in words, the most important first."""
    words = []
    for key, value in parameters.items():
        match key:
            case "bytes":
                words.append(format_bytes(float(value)))
            case "threads" | "workers":
                words.append(f"{value} {key if value != 1 else key[:-1]}")
            case "dtype" | "size" | "host" | "cache" | "shape" | "mode":
                words.append(str(value))
            case _:
                words.append(f"{key} {value}")
    return ", ".join(words)


def figure(value: float) -> str:
    """Three significant digits, plain: '41.2', '1,230', '0.00412'."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def share_text(row: Measurement) -> str:
    """Share of the ceiling, with the share at the run's measured clock in brackets if that differs."""
    share, at_clock = row.share_of_ceiling, row.share_at_measured_clock
    if share is None:
        return ""
    if at_clock is None or abs(at_clock - share) < 0.01:
        return f"{share:.0%}"
    return f"{share:.0%} ({at_clock:.0%})"


def _screen_table(record: Record) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("measured", no_wrap=True)
    table.add_column("with", overflow="fold")
    for name in ("value", "unit", "p10", "p90", "of ceiling"):
        table.add_column(name, justify="left" if name == "unit" else "right", no_wrap=True)
    table.add_column("doubts", overflow="fold")
    for row in record.measurements:
        value = "refused" if row.value is None else figure(row.value)
        cells = [value, row.unit, figure(row.p10), figure(row.p90), share_text(row)]
        table.add_row(row.name, parameters_text(row.parameters), *cells, doubts_text(row))
    return table


def doubts_text(row: Measurement) -> str:
    """The doubts in one line."""
    return "; ".join(doubt.text for doubt in row.doubts)


def _print_finding(finding: Finding, out: Console) -> None:
    style = {"broken": "red", "warning": "yellow"}.get(finding.severity, "")
    out.print(f"\n{finding.severity}: {finding.title}", style=style)
    for one in finding.evidence:
        out.print(f"  {one.fact}: {one.value}")
    out.print(f"  {finding.why}")
    for remedy in finding.fix:
        out.print(f"  → {remedy.say}" + (f": {remedy.run}" if remedy.run else ""))
