"""The measurements of a search, trial by trial: the rows of a profile's evidence as lines and as parts of a page."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.profile.model import LoaderTrial, ProfileEvidence, ProfileTrial
from gpudoc.render.chart import Axis, Series, line_chart
from gpudoc.render.page import Figure
from gpudoc.render.table import Table
from gpudoc.units import format_bytes, format_seconds

_NUMERIC = frozenset({"batch", "peak", "samples/s", "took"})


def trial_lines(trials: Sequence[ProfileTrial], name: str) -> list[str]:
    """One line for each trial; `name` is the word for one trial."""
    lines = [f"  kind        batch  end              peak         samples/s   {name}"]
    for row in trials:
        kind, batch, end, peak, rate, took = _cells(row)
        lines.append(f"  {kind:<10} {batch:>6}  {end:<15}  {peak:<11}  {rate:>9}  {took:>8}")
    return lines


def loader_lines(trials: Sequence[LoaderTrial]) -> list[str]:
    """One line for each measured loader setting."""
    return [
        f"  loader     {row.num_workers} workers x {row.prefetch_factor}{', pinned' if row.pin_memory else ''}: "
        f"{row.samples_per_s:,.4g} samples/s" + ("" if row.wait_share is None else f", {row.wait_share:.0%} waiting")
        for row in trials
    ]


def trial_table(trials: Sequence[ProfileTrial], name: str) -> Table:
    """Every trial, with the settings that shape its memory if they are known."""
    headings = [name, "batch", "end", "peak", "samples/s", "took"]
    rows = [list(_cells(row)) for row in trials]
    if any(row.settings is not None for row in trials):
        headings[5:5] = ["precision", "allocator"]
        for cells, row in zip(rows, trials, strict=True):
            known = row.settings
            cells[5:5] = ["", ""] if known is None else [known.precision, known.allocator]
    return Table(headings=tuple(headings), rows=tuple(map(tuple, rows)), numeric=_NUMERIC)


def loader_table(trials: Sequence[LoaderTrial]) -> Table:
    """Every measured loader setting."""
    return Table(
        headings=("workers", "prefetch", "pinned", "samples/s", "waiting"),
        rows=tuple(
            (
                f"{row.num_workers}",
                f"{row.prefetch_factor}",
                "yes" if row.pin_memory else "no",
                f"{row.samples_per_s:,.4g}",
                "" if row.wait_share is None else f"{row.wait_share:.0%}",
            )
            for row in trials
        ),
        numeric=frozenset({"workers", "prefetch", "samples/s", "waiting"}),
    )


def memory_figure(
    evidence: ProfileEvidence, measured: Sequence[ProfileTrial], limit_bytes: int, *fitted: Series
) -> Figure | str:
    """Peak memory against the batch of the `measured` trials, with the limit and the fitted lines.

    A sentence if only one batch was measured.
    """
    fits = tuple(sorted((float(row.batch), float(row.peak_bytes or 0)) for row in measured if row.fits))
    first, last = (fits[0][0], fits[-1][0]) if fits else (1.0, 1.0)
    series = [
        Series(name="measured peak", points=fits, style="points"),
        Series(name="limit", points=((first, float(limit_bytes)), (last, float(limit_bytes))), style="roof"),
        *fitted,
    ]
    svg = line_chart("Peak memory", series, Axis(label="batch"), Axis(label="", tick=format_bytes, base=2))
    failed = [f"{row.batch} ({row.end})" for row in evidence.trials if not row.fits]
    caption = f"Did not fit: {', '.join(failed)}." if failed else "Every batch that was tried fitted."
    if svg or not fits:
        return Figure(svg, caption) if svg else caption
    batch, peak = fits[0]
    return f"Batch {batch:,.0f} took {format_bytes(peak)} of {format_bytes(limit_bytes)}. {caption}"


def _cells(row: ProfileTrial) -> tuple[str, str, str, str, str, str]:
    return (
        row.kind,
        f"{row.batch:,}",
        row.end,
        "" if row.peak_bytes is None else format_bytes(row.peak_bytes),
        "" if row.samples_per_s is None else f"{row.samples_per_s:,.4g}",
        format_seconds(row.seconds),
    )
