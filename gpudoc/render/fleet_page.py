"""A judged fleet as one self-contained page: findings, a heat map per kind of measure and per measure, software."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpudoc.facts.model import Absent
from gpudoc.fleet.record import FleetRecord
from gpudoc.fleet.report import FleetReport
from gpudoc.fleet.scores import Family
from gpudoc.fleet.verdict import FleetVerdict, headline
from gpudoc.fleet.wording import spot_name, spots_name
from gpudoc.render.doctor import marked
from gpudoc.render.fleet import comparison_lines, how_judged, measure_name, measure_row, scored_measures, unjudged_lines
from gpudoc.render.heat import heat_map, order_of
from gpudoc.render.page import Block, Figure, Note, Section, page, save_page
from gpudoc.render.table import Table

_MOST_ODD = 12
_HEADINGS = ("measured", "places", "median", "unit", "spread σ", "slowest", "at", "σ away")
_NUMERIC = frozenset({"places", "median", "spread σ", "slowest", "σ away", "share", "ceiling"})


def save(path: Path, report: FleetReport) -> None:
    """Write the page; GpudocError if it cannot be written."""
    save_page(path, render_page(report))


def render_page(report: FleetReport) -> str:
    """The page as text; it names no host."""
    record, verdict = report.record, report.verdict
    changed = [] if report.comparison is None else list(comparison_lines(report.comparison))
    sections = [
        Section("What is odd, and what to do", tuple(_findings(verdict))),
        Section(
            "Since the older record",
            (Note(kind="info", title="What changed", points=tuple(changed)),) if changed else (),
        ),
        Section("Heat maps, the oddest node first", tuple(_maps(record, verdict))),
        Section("Every measure", tuple(_measures(verdict))),
        Section("Against what the model can do", tuple(_expected(verdict))),
        Section("Software that differs", tuple(_software(verdict))),
        Section("Not judged", tuple(_unjudged(verdict))),
        Section("How it was judged", (how_judged(verdict) + ".", *_maker(record))),
    ]
    kept = [section for section in sections if section.blocks]
    return page(f"gpudoc fleet: {verdict.word}", kept, lead=f"{headline(record, verdict)}.")


def _findings(verdict: FleetVerdict) -> Iterator[Block]:
    for one in verdict.named:
        finding = one.finding
        points = [f"{seen.fact}: {seen.value} ({seen.origin})" for seen in finding.evidence]
        points += [marked(remedy) for remedy in finding.fix]
        commands = tuple(remedy.run for remedy in finding.fix if remedy.run)
        title = f"{'Drain: ' if one.drain else ''}{finding.title}"
        yield Note(kind=finding.severity, title=title, text=finding.why, points=tuple(points), commands=commands)
    if not verdict.named:
        kind = "good" if verdict.word == "healthy" else "warning"
        title = (
            "Nothing is odd" if verdict.word == "healthy" else "Nothing odd was found, but not everything was judged"
        )
        yield Note(kind=kind, title=title)


def _maps(record: FleetRecord, verdict: FleetVerdict) -> Iterator[Block]:
    gpus = [len(node.gpus) for node in record.nodes]
    yield (
        "A column is a node, a row is a GPU. The colour shows the distance below the peers of the same model and "
        "position; grey means not measured."
    )
    for family in sorted(verdict.families, key=lambda one: min(one.z.values(), default=0.0)):
        svg = heat_map(family.name[0].upper() + family.name[1:], family.z, gpus)
        if svg:
            yield Figure(svg, _oddest(family, len(gpus)))
            if len(family.scored) > 1:
                for scored in family.scored:
                    yield Figure(heat_map(measure_name(scored), scored.z, gpus))


def _oddest(family: Family, nodes: int) -> str:
    single = {at[0]: z for at, z in family.z.items() if len(at) == 1}
    worst = sorted(single, key=lambda spot: single[spot])[:_MOST_ODD]
    named = ", ".join(f"{spot_name(spot)} {-single[spot]:.1f} σ" for spot in worst if single[spot] <= -2)
    first = ", ".join(str(number) for number in order_of(single, nodes)[:10])
    return f"Columns from the left: nodes {first}, ... " + (f"Furthest below: {named}." if named else "")


def _measures(verdict: FleetVerdict) -> Iterator[Block]:
    rows = sorted(scored_measures(verdict.families), key=lambda one: min(one[1].z.values(), default=0.0))
    if rows:
        yield Table(headings=_HEADINGS, rows=tuple(measure_row(scored) for _, scored in rows), numeric=_NUMERIC)


def _expected(verdict: FleetVerdict) -> Iterator[Block]:
    rows = tuple(
        (one.model, one.measure.key, f"{one.middle:.4g}", f"{one.ceiling:.4g}", f"{one.share:.0%}", one.formula)
        for one in verdict.expected
    )
    if rows:
        yield Table(headings=("model", "measure", "median", "ceiling", "share", "from"), rows=rows, numeric=_NUMERIC)


def _software(verdict: FleetVerdict) -> Iterator[Block]:
    rows = []
    for one in verdict.software:
        for value, nodes in one.values.items():
            usual = "usual" if value == one.usual else "odd" if one.usual is not None else ""
            rows.append((one.what, value, str(len(nodes)), usual, _numbers(nodes)))
        if one.untold:
            rows.append((one.what, "not known", str(len(one.untold)), "", _numbers(one.untold)))
    if rows:
        yield Table(headings=("what", "value", "places", "", "nodes"), rows=tuple(rows), numeric=_NUMERIC)


def _numbers(nodes: tuple[int, ...]) -> str:
    shown = ", ".join(str(number) for number in nodes[:16])
    return shown + (f" and {len(nodes) - 16} more" if len(nodes) > 16 else "")


def _unjudged(verdict: FleetVerdict) -> Iterator[Block]:
    points = [*unjudged_lines(verdict.unjudged)]
    points += [f"looked odd only once: {spots_name(o.at)}, {o.family.name}" for o in verdict.cleared]
    if points:
        yield Note(kind="warning", title="What was not measured does not count as healthy", points=tuple(points))


def _maker(record: FleetRecord) -> Iterator[Block]:
    rows = [(name.replace("_", " "), str(value)) for name, value in record.made.items()]
    switches = {node.switch for node in record.nodes if not isinstance(node.switch, Absent)}
    rows.append(("switches", str(len(switches)) if switches else "not known"))
    yield Table(headings=("", "value"), rows=tuple(rows))
