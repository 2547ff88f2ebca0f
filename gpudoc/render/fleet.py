"""A judged fleet on the screen: the verdict, the odd places and why, a line per measure, the unjudged places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from gpudoc.facts.redact import private
from gpudoc.fleet.compare import FleetComparison
from gpudoc.fleet.oddities import worth
from gpudoc.fleet.record import FleetRecord
from gpudoc.fleet.report import FleetReport
from gpudoc.fleet.scores import SPREADS, WEIGHT, Family, Scored
from gpudoc.fleet.verdict import FleetVerdict, Unjudged, bad_hosts, headline
from gpudoc.fleet.wording import spot_name, spots_name
from gpudoc.render.console import print_json, print_lines, stdout
from gpudoc.render.doctor import marked
from gpudoc.stats import quantile
from gpudoc.units import format_bytes

# limits for one screen: findings, measures that could not be judged, and changes; --verbose shows all
_MOST_FINDINGS, _MOST_UNJUDGED, _MOST_CHANGES = 10, 5, 10
_PIPE_WIDTH = 150
_COLOURS = {"broken": "red", "warning": "yellow", "info": "blue"}


def show(report: FleetReport, *, as_json: bool, plain: bool, verbose: bool) -> None:
    """Print the report on stdout, as one JSON document or as a screen; neither names a host."""
    if as_json:
        print_json(private(report.to_json()))
    else:
        print_screen(report, stdout(plain), verbose=verbose)


def print_screen(report: FleetReport, out: Console, *, verbose: bool) -> None:
    """Print the report for people."""
    if not out.is_terminal:
        out.width = _PIPE_WIDTH
    record, verdict = report.record, report.verdict
    out.print(headline(record, verdict))
    _print_findings(verdict, out, verbose=verbose)
    table = measure_table(verdict)
    if table.row_count:
        out.print(table)
    out.print(how_judged(verdict))
    for line in unjudged_lines(verdict.unjudged, None if verbose else _MOST_UNJUDGED):
        out.print(f"not judged: {line}")
    for odd in verdict.cleared:
        out.print(f"looked odd only once: {spots_name(odd.at)}, {odd.family.name}")
    if report.comparison is not None:
        for line in comparison_lines(report.comparison, None if verbose else _MOST_CHANGES):
            out.print(line)
    if verdict.drained:
        out.print("names, one per line, for scripts: gpudoc bench --across --bad-hosts, inside the allocation")


def show_bad_hosts(record: FleetRecord, verdict: FleetVerdict) -> None:
    """Print the hosts to drain on stdout, one per line and nothing else."""
    for host in bad_hosts(record, verdict):
        print_lines(host)


def _print_findings(verdict: FleetVerdict, out: Console, *, verbose: bool) -> None:
    shown = verdict.named if verbose else verdict.named[:_MOST_FINDINGS]
    for one in shown:
        finding = one.finding
        mark = "drain" if one.drain else finding.severity
        out.print(f"\n{mark}: {finding.title}", style=_COLOURS[finding.severity])
        out.print(f"  {finding.why}")
        for seen in finding.evidence:
            out.print(f"  {seen.fact}: {seen.value} ({seen.origin})")
        for remedy in finding.fix:
            out.print(f"  - {marked(remedy)}")
            if remedy.run:
                out.print(f"    $ {remedy.run}")
    if len(verdict.named) > len(shown):
        out.print(f"\nand {len(verdict.named) - len(shown)} more findings: --verbose, --html or --json")
    if verdict.named:
        out.print()


def measure_table(verdict: FleetVerdict) -> Table:
    """One line per measure: the median, the spread of the places, the slowest place and how odd it is."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, justify in (
        ("measured", "left"),
        ("places", "right"),
        ("median", "right"),
        ("unit", "left"),
        ("spread σ", "right"),
        ("slowest", "right"),
        ("at", "left"),
        ("σ away", "right"),
    ):
        table.add_column(heading, justify="left" if justify == "left" else "right")
    for _, scored in scored_measures(verdict.families):
        table.add_row(*measure_row(scored))
    return table


def scored_measures(found: Sequence[Family]) -> Iterator[tuple[Family, Scored]]:
    """Every measure with the family in which it is judged."""
    for family in found:
        for scored in family.scored:
            yield family, scored


def measure_row(scored: Scored) -> tuple[str, ...]:
    """The cells of one measure's line."""
    worst = min(scored.z, key=lambda at: scored.z[at])
    values = list(scored.values.values())
    return (
        measure_name(scored),
        str(len(values)),
        f"{quantile(values, 0.5):.4g}",
        scored.measure.unit,
        f"{scored.spread:.1%}",
        f"{scored.values[worst]:.4g}",
        spot_name(worst[0]),
        f"{-scored.z[worst]:.1f}",
    )


def measure_name(scored: Scored) -> str:
    """'matmul bf16, all GPUs at once' or 'sendrecv 64 MiB, ends of pairs'."""
    measure = scored.measure
    words = [
        format_bytes(float(value)) if name == "bytes" else str(value) for name, value in measure.parameters.items()
    ]
    name = " ".join([measure.name, *words])
    scope = {"pair": ", ends of pairs", "node": ", per node", "rail": ", per rail", "group": ", groups"}
    return name + scope.get(measure.scope, "") + (", all GPUs at once" if measure.load == "together" else "")


def how_judged(verdict: FleetVerdict) -> str:
    """The criterion for odd places in one sentence, with its numbers."""
    least = worth("compute")
    text = (
        f"odd is {verdict.limit:.2f} robust standard deviations and {least:.0%} or more below the peers of the same "
        "model and position, more among few; drained is what a second measurement in new processes finds too"
    )
    few = [family.kind for family in verdict.families if max(family.peers.values(), default=0) < 2 * WEIGHT]
    if few:
        kinds = ", ".join(f"{kind} {SPREADS[kind]:.1%}" for kind in dict.fromkeys(few))
        text += f"; with so few peers the usual spread of fleets counts as {WEIGHT} more ({kinds})"
    return text


def unjudged_lines(unjudged: Sequence[Unjudged], most: int | None = None) -> Iterator[str]:
    """The measures that could not be judged, where and why."""
    for one in unjudged[:most]:
        yield f"{one.what}: {spots_name(one.at)}: {one.because}"
    if most is not None and len(unjudged) > most:
        yield f"and {len(unjudged) - most} more: --verbose"


def comparison_lines(comparison: FleetComparison, most: int | None = None) -> Iterator[str]:
    """The changes since the older record."""
    yield (
        f"compared with the older record: {comparison.matched} GPUs are in both; apart from changes that affect all, "
        f"{len(comparison.worse)} figures are worse, {len(comparison.better)} better"
    )
    for shift in comparison.shifts:
        yield (
            f"  everywhere: {shift.key}: {shift.ratio - 1:+.1%} ({shift.old:.4g} to {shift.new:.4g} {shift.unit}, "
            f"{shift.places} places)"
        )
    for change in (*comparison.worse, *comparison.better)[:most]:
        place = spots_name(change.at)
        yield f"  {place}: {change.key}: {change.ratio - 1:+.1%} ({change.old:.4g} to {change.new:.4g} {change.unit})"
    yield from (f"  new: {title}" for title in comparison.appeared[:most])
    yield from (f"  gone: {title}" for title in comparison.mended[:most])
    yield from (f"  {line}" for line in comparison.versions)
    if comparison.only_old or comparison.only_new:
        yield f"  {comparison.only_old} GPUs are only in the older record, {comparison.only_new} in the newer"
