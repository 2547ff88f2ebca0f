"""Findings about odd places in words: name, figures, the peers' figures, other observations, and remedies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoc.doctor.model import Finding, Observation, Remedy, Setting, Severity
from gpudoc.doctor.remedies import advise
from gpudoc.facts.model import Absent
from gpudoc.fleet.corruption import Corrupt
from gpudoc.fleet.oddities import Level, Oddity, SplitMeasure
from gpudoc.fleet.record import FleetReading, FleetRecord, Measure, Spot
from gpudoc.fleet.scores import Scored
from gpudoc.stats import median

# the most figures in one finding; the page and --json have all
_MOST_FIGURES = 6
# values read while sampling: name, words, unit, and the smallest difference to report
_CONTEXT = (
    ("sm_clock_mhz", "SM clock", "MHz", 0.03),
    ("memory_clock_mhz", "memory clock", "MHz", 0.02),
    ("temperature_c", "temperature", "°C", 0.12),
    ("power_w", "power", "W", 0.10),
    ("link_generation", "PCIe generation", "", 0.01),
    ("link_width", "PCIe lanes", "", 0.01),
)
IDS: dict[Level, str] = {
    "gpu": "gpu_slower_than_peers",
    "node": "node_slower_than_peers",
    "link": "link_slower_than_peers",
    "path": "path_slower_than_ends",
    "switch": "switch_slower_than_peers",
    "rail": "rail_slower_than_peers",
    "group": "group_slower_than_peers",
}


def steps(name: str) -> tuple[Remedy, ...]:
    """The steps of knowledge/steps.yaml that a finding about a fleet gives."""
    return advise(name)(Setting())


def spot_name(spot: Spot) -> str:
    """'node 17' or 'GPU 3 of node 17'; node 17 is task 17's node, line 18 of `scontrol show hostnames`."""
    return f"node {spot.node}" if spot.gpu < 0 else f"GPU {spot.gpu} of node {spot.node}"


def spots_name(spots: Sequence[Spot]) -> str:
    """The places of a finding in one phrase, the first few by name."""
    names = [spot_name(spot) for spot in spots]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def place_name(level: Level, at: Sequence[Spot], record: FleetRecord) -> str:
    """The odd place as the beginning of a title: 'The link of GPU 3 of node 17 (mlx5_3)'."""
    match level:
        case "switch":
            switch = record.nodes[at[0].node].switch
            return f"Switch {'?' if isinstance(switch, Absent) else switch} with {len(at)} nodes"
        case "rail":
            rail = record.nodes[at[0].node].gpus[at[0].gpu].rail if at[0].gpu >= 0 else Absent("a node")
            return f"Rail {at[0].gpu if isinstance(rail, Absent) else rail} over {len(at)} nodes"
        case "link":
            return f"The link of {spots_name(at)}{_rail_of(at[0], record)}"
        case "path":
            return f"The path between {' and '.join(spot_name(spot) for spot in at)}"
        case "group":
            return f"The group of {len(at)} places from {spot_name(at[0])} on"
        case _:
            name = spots_name(at)
            return name[0].upper() + name[1:]


def _rail_of(spot: Spot, record: FleetRecord) -> str:
    gpus = record.nodes[spot.node].gpus
    rail = gpus[spot.gpu].rail if 0 <= spot.gpu < len(gpus) else Absent("a node")
    return "" if isinstance(rail, Absent) else f" ({rail})"


def slow_finding(odd: Sequence[Oddity], record: FleetRecord, *, drain: bool) -> Finding:
    """The finding of one place that is odd in these families."""
    worst = max(odd, key=lambda one: one.sigma)
    level, at = worst.level, worst.at
    kinds = ", ".join(dict.fromkeys(one.family.name for one in odd))
    severity: Severity = "broken" if drain else "warning"
    said = [line for one in odd for line in _figures(one)][:_MOST_FIGURES]
    seen = list(_contexts(worst))
    return Finding(
        id=IDS[level],
        severity=severity,
        confidence=0.95 if worst.is_confirmed else 0.7,
        title=f"{place_name(level, at, record)} is {worst.loss:.0%} below its peers: {kinds}",
        evidence=(*said, *seen, *_second(odd)),
        fix=tuple(_fixes(worst, seen, drain=drain)),
    )


def _figures(odd: Oddity) -> Iterator[Observation]:
    for scored in odd.family.scored:
        at = [one for one in scored.z if one == odd.at or (odd.level in ("node", "switch") and _inside(one, odd.at))]
        if not at:
            continue
        mine = median([scored.values[one] for one in at])
        others = median(list(scored.values.values()))
        sigma = -median([scored.z[one] for one in at])
        text = f"{mine:.4g} {scored.measure.unit}; the {len(scored.values)} peers {others:.4g}; {sigma:.1f} σ"
        yield Observation(scored.measure.key, text, "first measurement")
    if odd.level in ("path", "rail"):
        text = f"{odd.loss:.1%} less than {'its ends reach with others' if odd.level == 'path' else 'the other rails'}"
        yield Observation(odd.family.scored[0].measure.key, f"{text}; {odd.sigma:.1f} σ", "first measurement")


def _inside(at: Sequence[Spot], places: Sequence[Spot]) -> bool:
    return at[0].node in {spot.node for spot in places}


def _second(odd: Sequence[Oddity]) -> Iterator[Observation]:
    for one in odd:
        if one.sigma_again is not None and one.loss_again is not None:
            text = f"{one.loss_again:.1%} below its peers, {one.sigma_again:.1f} σ"
            yield Observation(one.family.name, text, "second measurement, in new processes")


def _contexts(odd: Oddity) -> Iterator[Observation]:
    """Values read while sampling that differ from the peers'."""
    for name, words, unit, least in _CONTEXT:
        for scored in odd.family.scored:
            mine, others = _context(scored, odd, name)
            if mine and others and abs(median(mine) / (median(others) or 1.0) - 1) >= least:
                text = f"{median(mine):.4g} {unit}".strip() + f", the others {median(others):.4g}"
                yield Observation(words, text, scored.measure.key)
                break


def _context(scored: Scored, odd: Oddity, name: str) -> tuple[list[float], list[float]]:
    mine: list[float] = []
    others: list[float] = []
    for reading in scored.measure.readings:
        if name in reading.context:
            (mine if _inside_or_equal(reading, odd) else others).append(reading.context[name])
    return mine, others


def _inside_or_equal(reading: FleetReading, odd: Oddity) -> bool:
    return reading.at == odd.at or (odd.level in ("node", "switch") and _inside(reading.at, odd.at))


def _fixes(odd: Oddity, seen: Sequence[Observation], *, drain: bool) -> Iterator[Remedy]:
    if not drain:
        yield from steps("measure_fleet_again")
    names = {one.fact for one in seen}
    kind = odd.family.kind
    if kind == "host link" or names & {"PCIe generation", "PCIe lanes"}:
        yield Remedy(
            say="Reseat the card or its riser; compare the link's generation and width with those it supports.",
            run="nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,"
            "pcie.link.width.max --format=csv",
        )
    elif kind in ("compute", "memory"):
        if "temperature" in names:
            yield Remedy(
                say="Check the fans, air flow, coolant and the seat of the heat sink: it runs hotter than its peers."
            )
        yield Remedy(
            say="See which clock it reaches under load, and why it is not higher.",
            run="nvidia-smi -q -d CLOCK,PERFORMANCE,POWER,TEMPERATURE,ECC,ROW_REMAPPER",
        )
    elif kind == "GPU link":
        yield Remedy(say="Look for NVLinks that are down or report errors.", run="nvidia-smi nvlink --status -e")
    elif kind == "network":
        yield Remedy(
            say="Check the port's rate and error counters; clean or replace the cable or transceiver, then the port.",
            run="ibstat; ibqueryerrors 2>/dev/null; ethtool -S DEVICE | grep -iE 'err|discard|pause'",
        )
    elif kind == "storage":
        yield Remedy(
            say="Check the node's mount, the load of its client and the local disk.", run="df -h; iostat -x 1 5"
        )
    if drain:
        yield from steps("drain_node")


def corrupt_finding(one: Corrupt, *, drain: bool) -> Finding:
    """The finding of a GPU that computes wrong bits, or of several GPUs of which one does."""
    name = spot_name(one.at)
    if one.undecided:
        name = f"One of {spots_name(one.undecided)}"
    how = "does not agree with itself" if one.alone else f"disagrees with {one.voters} equal GPUs"
    said = [Observation("products", ", ".join(one.products[:4]), "digests")]
    said.append(
        Observation("wrong", f"{one.wrong} of {one.repeats} repeats{' (hot only)' if one.hot_only else ''}", how)
    )
    if one.measured_again:
        text = "wrong again" if one.confirmed else "correct this time, but intermittent corruption is still corruption"
        said.append(Observation("second run", text, "in new processes"))
    return Finding(
        id="gpus_disagree" if one.undecided else "gpu_corrupts_silently",
        severity="broken",
        confidence=0.97 if one.confirmed else 0.5 if one.undecided else 0.85,
        title=f"{name[0].upper()}{name[1:]} computes wrong results without an error",
        evidence=tuple(said),
        fix=(*steps("stress_test"), *steps("drain_node" if drain else "measure_fleet_again")),
    )


def failed_finding(at: Spot, measures: Sequence[Measure], because: str, *, drain: bool) -> Finding:
    """The finding of a place where a measure failed that works elsewhere."""
    said = tuple(Observation(measure.key, because, f"attempt {measure.attempt}") for measure in measures[:4])
    name = spot_name(at)
    return Finding(
        id="measure_fails_here",
        severity="broken" if drain else "warning",
        confidence=0.9 if drain else 0.7,
        title=f"{name[0].upper()}{name[1:]} fails where its peers do not: {measures[0].name}",
        evidence=said,
        fix=(
            Remedy(say="Read what doctor and the kernel say on that node.", run="gpudoc doctor; dmesg | grep -i xid"),
            *steps("drain_node" if drain else "measure_fleet_again"),
        ),
    )


def split_finding(one: SplitMeasure) -> Finding:
    """The finding of a measure that splits the fleet in two."""
    measure = one.scored.measure
    return Finding(
        id="fleet_is_split",
        severity="warning",
        confidence=0.8,
        title=f"{measure.key}: a quarter of the places or more is {one.loss:.0%} below the median",
        evidence=(Observation("below", f"{len(one.below)}: {spots_name(one.below)}", "first measurement"),),
    )
