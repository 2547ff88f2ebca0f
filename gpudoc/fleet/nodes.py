"""Findings about whole nodes: silent nodes, doctor's findings there, software and clocks that differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpudoc.doctor.model import Finding, Observation, Remedy
from gpudoc.facts.model import Absent
from gpudoc.fleet.expectation import Expected
from gpudoc.fleet.oddities import Level
from gpudoc.fleet.record import FleetRecord, MissingPart, Reason, Spot
from gpudoc.fleet.software import Difference, clocks_apart
from gpudoc.fleet.wording import spots_name, steps

_SILENT: dict[Reason, tuple[str, str]] = {
    "died": ("its processes ended", "Read the job's log and the node's kernel log, then run on this node alone."),
    "hung": ("it did not answer in time", "See what it is doing: gpudoc doctor --pid PID on the node."),
    "no gpudoc": (
        "gpudoc is not installed there",
        "Install the same gpudoc there, or start from a shared environment.",
    ),
    "another version": ("another version of gpudoc runs there", "Install the same gpudoc on all nodes."),
    "unreadable": ("its answer cannot be read", "Check its disk and how the job ended there, then measure again."),
}
# a fault of more than half of the nodes is not a fault of a single node
_COMMON = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A finding of a fleet with the places that it names; `drain` only after a second, independent measurement.

    `families` are the names of the families in which it is odd.
    """

    finding: Finding
    level: Level | str
    at: tuple[Spot, ...]
    confirmed: bool
    drain: bool
    sigma: float | None = None
    loss: float | None = None
    families: tuple[str, ...] = ()


def silent_findings(record: FleetRecord) -> Iterator[Named]:
    """Nodes that did not answer, by reason; drained only if a second start also failed."""
    groups: dict[tuple[Reason, bool], list[tuple[int, MissingPart]]] = {}
    for number, node in enumerate(record.nodes):
        if node.missing is not None:
            groups.setdefault((node.missing.reason, node.missing.attempts > 1), []).append((number, node.missing))
    for (reason, twice), members in groups.items():
        meaning, advice = _SILENT[reason]
        at = tuple(Spot(number) for number, _ in members)
        said = [
            Observation(spots_name(spot), f"{one.because}{f' (during {one.during})' if one.during else ''}", reason)
            for spot, (_, one) in zip(((one,) for one in at), members[:5], strict=False)
        ]
        # a reason that any restart of the same software repeats is not a fault of the node's hardware
        drain = twice and reason in ("died", "hung", "unreadable")
        finding = Finding(
            id="node_silent",
            severity="broken" if drain else "warning",
            confidence=0.95 if twice else 0.8,
            title=f"{_of_nodes(at)} gave no answer: {meaning}",
            evidence=tuple(said),
            fix=(Remedy(say=advice), *(steps("drain_node") if drain else ())),
        )
        yield Named(finding=finding, level="node", at=at, confirmed=twice, drain=drain)


def node_findings(record: FleetRecord) -> Iterator[Named]:
    """Doctor's findings of every node, equal ones together."""
    groups: dict[str, list[tuple[int, Finding]]] = {}
    for number, node in enumerate(record.nodes):
        for finding in node.findings:
            if finding.severity != "info":
                groups.setdefault(finding.id, []).append((number, finding))
    for members in groups.values():
        at = tuple(Spot(number) for number in dict.fromkeys(number for number, _ in members))
        common = len(record.nodes) > 1 and len(at) > _COMMON * len(record.nodes)
        worst = min((finding for _, finding in members), key=lambda one: ("broken", "warning").index(one.severity))
        twice = {spot.node for spot in at if _found_again(record, spot.node, worst.id)}
        drained = tuple(spot for spot in at if spot.node in twice and worst.severity == "broken" and not common)
        rest = tuple(spot for spot in at if spot not in drained)
        for places, drain in ((drained, True), (rest, False)):
            if places:
                title = f"{_of_nodes(places)}: {worst.title}"
                fix = (*worst.fix, *steps("drain_node")) if drain else worst.fix
                finding = replace(worst, title=title, fix=fix, explains=())
                yield Named(finding=finding, level="node", at=places, confirmed=drain, drain=drain)


def _found_again(record: FleetRecord, number: int, cause: str) -> bool:
    again = record.nodes[number].findings_again
    return not isinstance(again, Absent) and cause in again


def software_findings(software: Sequence[Difference], num_nodes: int) -> Iterator[Named]:
    """Differences in software; names the odd nodes if most nodes agree."""
    for one in software:
        if len(one.values) < 2:
            continue
        odd = tuple(Spot(number) for number in one.odd) if one.usual is not None else ()
        who = spots_name(odd) if odd else f"{len(one.values)} values on {num_nodes} nodes"
        said = tuple(
            Observation(one.what, value, spots_name([Spot(number) for number in nodes]))
            for value, nodes in list(one.values.items())[:5]
        )
        finding = Finding(
            id="software_differs" if one.what != "GPU" else "gpus_differ",
            severity="warning" if one.is_essential else "info",
            confidence=0.95 if odd else 0.6,
            title=f"{one.what} differs: {who}",
            evidence=said,
        )
        yield Named(finding=finding, level="node" if odd else "fleet", at=odd, confirmed=False, drain=False)


def clock_findings(record: FleetRecord) -> Iterator[Named]:
    """Nodes whose clock is seconds away from rank 0's."""
    apart = clocks_apart(record)
    if not apart:
        return
    at = tuple(Spot(number) for number, _ in apart)
    said = tuple(Observation(spots_name([Spot(n)]), f"{offset:+.1f} s", "against rank 0") for n, offset in apart[:5])
    finding = Finding(
        id="clocks_apart",
        severity="warning",
        confidence=0.95,
        title=f"{_of_nodes(at)}: its clock differs from the others by seconds",
        evidence=said,
    )
    yield Named(finding=finding, level="node", at=at, confirmed=False, drain=False)


def below_model_finding(one: Expected) -> Finding:
    """The finding if half of a model's GPUs are below its normal: no GPU is odd, but all are slow."""
    return Finding(
        id="fleet_below_model",
        severity="warning",
        confidence=0.8,
        title=f"{one.gpus} x {one.model}: {one.measure.key} is {one.share:.0%} of what the model can do",
        why=f"Normal is {one.normal:.0%} and more, so the cause is common to all: power limits, clocks, software.",
        evidence=(
            Observation(one.measure.key, f"{one.middle:.4g} {one.measure.unit}, the median of all", "this record"),
            Observation("ceiling", f"{one.ceiling:.4g} {one.measure.unit}", one.formula),
        ),
    )


def _of_nodes(at: Sequence[Spot]) -> str:
    name = spots_name(at)
    return name[:1].upper() + name[1:]
