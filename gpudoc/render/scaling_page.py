"""The measurement over ranks as sections of a page: the verdict, speed against ranks, and where each step goes."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.render.chart import Axis, Series, line_chart
from gpudoc.render.page import Block, Figure, Note, Section
from gpudoc.render.scaling import failure, heading, ranks_of, table
from gpudoc.render.table import Table
from gpudoc.tune.model.scaling import Scaling


def scaling_sections(scaling: Scaling) -> list[Section]:
    """The sections in reading order."""
    rows = table(scaling)
    numeric = frozenset(rows[0][:-1])
    found = Table(headings=rows[0], rows=tuple(rows[1:]), numeric=numeric)
    sentences = [
        f"Measured with {heading(scaling).removeprefix('scaling: ')}. {_settings(scaling)}",
        *_reading(scaling),
    ]
    return [
        Section("Does it scale?", (_verdict(scaling), *_curves(scaling))),
        Section("Where the rest goes", (found, *sentences)),
    ]


def _verdict(scaling: Scaling) -> Note:
    points = [f"{ranks_of(point)}: {point.why}" for point in scaling.points if point.why]
    points += [f"{ranks_of(point)}: {failure(point)}" for point in scaling.points if point.samples_per_s is None]
    most = scaling.points[-1] if scaling.points else None
    return Note(
        kind="good" if scaling.is_answered and most is not None and most.cause is None else "info",
        title=f"{scaling.verdict[:1].upper()}{scaling.verdict[1:]}",
        points=(*points, *scaling.notes),
        commands=(scaling.command,) if scaling.command else (),
    )


def _curves(scaling: Scaling) -> Iterator[Block]:
    known = [(point, point.samples_per_s) for point in scaling.points if point.samples_per_s is not None]
    if len(known) < 2:
        return
    measured = tuple((float(point.ranks), rate.middle) for point, rate in known)
    # the speed of the same ranks without loss; on a CPU it is not a straight line, since threads are shared
    ideal = tuple(
        (float(p.ranks), rate.middle / p.efficiency.middle if p.efficiency else rate.middle) for p, rate in known
    )
    series = [Series(name="measured", points=measured), Series(name="without loss", points=ideal, style="roof")]
    svg = line_chart("Samples per second", series, Axis(label="ranks", log=True, base=2), Axis(label="samples/s"))
    yield Figure(svg, "All ranks together, with real data. Without loss, every rank would be as fast as one alone.")


def _settings(scaling: Scaling) -> str:
    return f"Settings: {scaling.settings_from}." if scaling.settings_from else ""


def _reading(scaling: Scaling) -> Iterator[str]:
    alone = "the same rank alone" if scaling.device == "cuda" else "one rank alone with as many threads"
    yield (
        f"Efficiency is relative to {alone}. The other shares are parts of the step that several ranks spend and one "
        "alone does not; together with the efficiency they add up to the whole step. ± is an interval of about 95 %, "
        "from the spread."
    )
