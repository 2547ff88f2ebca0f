"""A search over a script as one self-contained page: the script as it is, what was found, memory, every launch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpudoc.render.chart import Axis, Series, line_chart
from gpudoc.render.page import Block, Figure, Note, Section, Table, page, save_page
from gpudoc.render.script import headline, look_lines, train_command, tune_command
from gpudoc.script.search import ScriptResult
from gpudoc.units import format_bytes, format_seconds


def save(path: Path, result: ScriptResult) -> None:
    """Write the page; GpudocError when it cannot be written."""
    save_page(path, render_page(result))


def render_page(result: ScriptResult) -> str:
    """The page as text."""
    look = Note(kind="info", title=str(result.command), points=tuple(line.strip() for line in look_lines(result.look)))
    sections = [
        Section("The script as it is", (look,)),
        Section("What was found", tuple(_found(result))),
        Section("Memory against batch", tuple(_memory(result))),
        Section("The loader", tuple(_loader(result))),
        Section("Every launch", tuple(_launches(result))),
    ]
    made = result.profile.made if result.profile is not None else None
    return page(
        "gpudoc tune -- a script",
        [section for section in sections if section.blocks],
        lead=headline(result),
        foot=f"gpudoc {made.gpudoc}, {made.at}; {result.isolation}" if made else result.isolation,
    )


def _found(result: ScriptResult) -> Iterable[Block]:
    if result.profile is None:
        yield Note(kind="info", title="Nothing was tuned", points=result.advice, commands=(tune_command(result),))
        return
    points = (*(result.stored.kept if result.stored else ()), *result.profile.why)
    kind = "good" if result.findings.verdict.kind == "faster" else "info"
    yield Note(kind=kind, title="Run it with this", points=points, commands=(train_command(result),))
    if result.lines:
        written = tuple(f"{line}" for line in result.lines)
        yield Note(kind="info", title="Or write it into the script", commands=written)
    if result.advice:
        yield Note(kind="info", title="Seen, and not set", points=result.advice)


def _memory(result: ScriptResult) -> Iterable[Block]:
    if result.profile is None or result.limit_bytes is None:
        return
    rows = [row for row in result.profile.evidence.trials if row.kind == "fit" and row.peak_bytes is not None]
    fits = tuple(sorted((float(row.batch), float(row.peak_bytes or 0)) for row in rows if row.fits))
    if len(fits) < 2:
        return
    limit = float(result.limit_bytes)
    series = [
        Series(name="measured peak", points=fits, style="points"),
        Series(name="limit", points=((fits[0][0], limit), (fits[-1][0], limit)), style="roof"),
    ]
    svg = line_chart("Peak memory", series, Axis(label="batch"), Axis(label="memory", tick=format_bytes, base=2))
    failed = [f"{row.batch} ({row.end})" for row in result.profile.evidence.trials if not row.fits]
    yield Figure(svg, f"Did not fit: {', '.join(failed)}." if failed else "Every batch that was tried fitted.")


def _loader(result: ScriptResult) -> Iterable[Block]:
    if result.profile is None or not result.profile.evidence.loader:
        return
    yield Table(
        headings=("workers", "prefetch", "pinned", "samples/s", "waiting"),
        rows=tuple(
            (
                f"{row.num_workers}",
                f"{row.prefetch_factor}",
                "yes" if row.pin_memory else "no",
                f"{row.samples_per_s:,.4g}",
                "" if row.wait_share is None else f"{row.wait_share:.0%}",
            )
            for row in result.profile.evidence.loader
        ),
        numeric=frozenset({"workers", "prefetch", "samples/s", "waiting"}),
    )


def _launches(result: ScriptResult) -> Iterable[Block]:
    if result.profile is None:
        return
    yield Table(
        headings=("launch", "batch", "end", "peak", "samples/s", "took"),
        rows=tuple(
            (
                row.kind,
                f"{row.batch:,}",
                row.end,
                "" if row.peak_bytes is None else format_bytes(row.peak_bytes),
                "" if row.samples_per_s is None else f"{row.samples_per_s:,.4g}",
                format_seconds(row.seconds),
            )
            for row in result.profile.evidence.trials
        ),
        numeric=frozenset({"batch", "peak", "samples/s", "took"}),
    )
