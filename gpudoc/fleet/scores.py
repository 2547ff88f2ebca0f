"""How odd each place is in each kind of measure: its distance from its peers in robust standard deviations.

The yardstick. A value is the median of its samples; r is the logarithm of value over the peers' median, with the sign
such that less than 0 is worse. Peers have the same model, and from sixteen nodes on the same position on the node,
since a GPU far from the CPU or last in the air flow is slower on every node. The spread is 1.4826 times the median of
|r|, or that of the worse half if it is wider; from 400 peers on the lower tail gives it (`yardstick`). With few peers
the published spread counts as sixteen further peers (`SPREADS`). The spread is never less than the samples' own noise.

Measures of one kind under one load are one family: their mean z, in units of that mean's spread over the peers. If
only one measure is odd and the others are as usual, it must be ALONE further away.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from gpudoc.facts.model import Absent
from gpudoc.fleet.record import FleetReading, FleetRecord, Load, Measure, Spot
from gpudoc.units import MIB

At = tuple[Spot, ...]

# Relative standard deviations between healthy GPUs of one model. compute: 8 % between the whiskers of a box
# plot, which is 5.4 standard deviations of a normal spread (Sinha et al., SC22, arXiv 2208.11035, its abstract's 8 %
# read that way; its figures were not opened on 2026-11-22). The others are not published but assumptions of
# gpudoc, to be replaced by data from fleets; they matter only with few peers.
SPREADS: Mapping[str, float] = {
    "compute": 0.015,
    "memory": 0.005,
    "host link": 0.01,
    "GPU link": 0.01,
    "network": 0.01,
    "latency": 0.10,
    "storage": 0.10,
    "other": 0.05,
}
# the published spread counts as this number of peers
WEIGHT = 16
# from this many nodes on, positions on the node are compared with themselves
_NODES_FOR_POSITIONS = 16
# fewer places show that they differ, but not which one is odd
FEWEST_PEERS = 3
# measures of one kind are correlated: their mean z has a smaller spread than each of them
_MEAN_SPREAD = 0.9
# the extra standard deviations that one measure alone needs, and the z from which it is considered
ALONE, _LOOK_AT = 1.0, -3.0
# pairs with a common end whose values differ by less differ by chance
_NEAR = 0.03
# below this size a collective measures latency
_BANDWIDTH_BYTES = MIB
_CONSISTENT = 1.4826
# from this number of peers on, the lower tail itself gives its width; quantiles of the normal distribution
_MANY, _WIDER, _Z4, _Z20, _ROUNDS = 400, 1.5, 0.6745, 1.6449, 3
_FLOOR = -6.0

_KINDS = (
    (("matmul", "cpu_matmul", "train_step"), "compute"),
    (("device_", "memory_"), "memory"),
    (("h2d", "d2h", "bidirectional"), "host link"),
    (("loader", "folder", "storage"), "storage"),
)
_COLLECTIVES = ("all_", "reduce_", "broadcast", "sendrecv", "p2p")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One measure at its first attempt: r and z of each place, each place's peers, and r of the second attempt."""

    measure: Measure
    values: Mapping[At, float]
    relative: Mapping[At, float]
    z: Mapping[At, float]
    peers: Mapping[At, int]
    spread: float
    again: Mapping[At, float] = field(default_factory=dict)
    z_again: Mapping[At, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Measures of one kind under one load: z and r of each place (negative is worse), and the same measured again."""

    kind: str
    load: Load
    scored: tuple[Scored, ...]
    z: Mapping[At, float]
    relative: Mapping[At, float]
    peers: Mapping[At, int]
    spread: float
    z_again: Mapping[At, float]
    relative_again: Mapping[At, float]

    @property
    def name(self) -> str:
        """'compute (all GPUs at once)'."""
        return self.kind + (" (all GPUs at once)" if self.load == "together" else "")


def kind_of(measure: Measure) -> str:
    """The part of a machine that a measure concerns; a key of SPREADS."""
    for starts, kind in _KINDS:
        if measure.name.startswith(starts):
            return kind
    if measure.name.startswith(_COLLECTIVES):
        if float(measure.parameters.get("bytes", _BANDWIDTH_BYTES)) < _BANDWIDTH_BYTES:
            return "latency"
        inside = all(len({spot.node for spot in reading.at}) == 1 for reading in measure.readings)
        return "GPU link" if inside else "network"
    return "other"


def families(record: FleetRecord) -> tuple[Family, ...]:
    """The scores of all measures of the record, grouped by kind, load and scope (GPUs, nodes, link ends, groups)."""
    firsts = [measure for measure in record.measures if measure.attempt == 1]
    later: dict[str, list[Measure]] = {}
    for measure in record.measures:
        if measure.attempt > 1:
            later.setdefault(measure.key, []).append(measure)
    cohort_of = cohorts(record)
    groups: dict[tuple[str, Load, str], list[Scored]] = {}
    for measure in firsts:
        scored = score(measure, record, later.get(measure.key, []), cohort_of)
        if scored.values:
            groups.setdefault((kind_of(measure), measure.load, measure.scope), []).append(scored)
    return tuple(_family(kind, load, tuple(members)) for (kind, load, _), members in groups.items())


def score(
    measure: Measure, record: FleetRecord, later: Sequence[Measure] = (), cohort_of: Callable[[At], str] | None = None
) -> Scored:
    """One measure of the first attempt against its peers, and the results of later attempts at the same places.

    `cohort_of` is `cohorts(record)`, computed once for many measures.
    """
    values = values_of(measure)
    groups: dict[str, list[At]] = {}
    cohort_of = cohort_of or cohorts(record)
    for at in values:
        groups.setdefault(cohort_of(at), []).append(at)
    relative: dict[At, float] = {}
    peers: dict[At, int] = {}
    centres: dict[At, float] = {}
    sign = 1.0 if measure.better == "higher" else -1.0
    for members in groups.values():
        for at, centre in _centres(members, values).items():
            centres[at] = centre
            relative[at] = distance(values[at], centre, sign)
            peers[at] = len(members)
    prior = SPREADS[kind_of(measure)]
    noise = _noise(measure)
    z: dict[At, float] = {}
    yards: dict[str, tuple[float, float]] = {}
    for name, members in groups.items():
        centre, width = yardstick([relative[at] for at in members], prior)
        yards[name] = centre, max(width, noise)
        z.update((at, (relative[at] - centre) / yards[name][1]) for at in members)
    again = _again([values_of(one, values) for one in later], centres, sign, relative, z)
    z_again = {at: (r - yards[cohort_of(at)][0]) / yards[cohort_of(at)][1] for at, r in again.items()}
    return Scored(
        measure=measure,
        values=values,
        relative=relative,
        z=z,
        peers=peers,
        spread=max((width for _, width in yards.values()), default=prior),
        again=again,
        z_again=z_again,
    )


def values_of(measure: Measure, known: Mapping[At, float] = MappingProxyType({})) -> dict[At, float]:
    """The median of each place's samples; for pairs, the value that each end can reach.

    A pair is as fast as its slower end, so an end is as good as its best pair; its value is then the median of the
    pairs in which it was the slower one. `known` holds earlier values of the ends.
    """
    if measure.scope != "pair":
        return {reading.at: middle(reading.samples) for reading in measure.readings if reading.samples}
    pairs = [(reading.at, middle(reading.samples)) for reading in measure.readings if reading.samples]
    sign = 1.0 if measure.better == "higher" else -1.0
    best = {at[0]: sign * value for at, value in known.items()}
    for at, value in pairs:
        for spot in at:
            best[spot] = max(sign * value, best.get(spot, -math.inf))
    own: dict[Spot, list[float]] = {}
    for at, value in pairs:
        least = min(best[spot] for spot in at)
        for spot in at:
            # the path causes a value far below the best of its slower end
            if best[spot] == least and abs(value - sign * least) <= _NEAR * abs(least):
                own.setdefault(spot, []).append(value)
    there = dict.fromkeys(spot for at, _ in pairs for spot in at)
    return {(spot,): middle(own[spot]) if spot in own else sign * best[spot] for spot in there}


def middle(values: Sequence[float]) -> float:
    """The median, computed in few steps: a fleet needs hundreds of thousands of medians."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def distance(value: float, centre: float, sign: float) -> float:
    """The logarithm of value over centre, less than 0 if worse; a value of 0 gives the worst distance, _FLOOR."""
    if centre <= 0 or value <= 0:
        return _FLOOR if value <= 0 < centre else 0.0
    return max(_FLOOR, sign * math.log(value / centre))


def yardstick(relative: Sequence[float], prior: float) -> tuple[float, float]:
    """Centre and robust standard deviation of distances from a median; with few peers the prior has weight.

    With many peers it is the normal distribution through the lower quartile and the lowest twentieth: slow places are
    compared with the slowest healthy places, whatever the faster half does.
    """
    if not relative:
        return 0.0, prior
    ordered = sorted(relative)
    count = len(ordered)
    own = _CONSISTENT * middle([abs(r) for r in ordered])
    worse = [-r for r in ordered if r < 0]
    if len(worse) >= FEWEST_PEERS:
        own = max(own, _CONSISTENT * middle(worse))
    if count < _MANY:
        return 0.0, _with_prior(own, count, prior)
    # a twentieth or more may be ill: the quartile limits the width of the rest
    centre, wide = 0.0, own
    for _ in range(_ROUNDS):
        quarter, twentieth = ordered[len(ordered) // 4], ordered[len(ordered) // 20]
        wide = min(max((quarter - twentieth) / (_Z20 - _Z4), own / _WIDER), own * _WIDER)
        centre = quarter + _Z4 * wide
        # places that are already far away do not belong to the healthy tail
        ordered = ordered[bisect_left(ordered, centre + _LOOK_AT * wide) :]
    return centre, _with_prior(wide, count, prior)


def _with_prior(own: float, count: int, prior: float) -> float:
    return math.sqrt((count * own * own + WEIGHT * prior * prior) / (count + WEIGHT))


def cohorts(record: FleetRecord) -> Callable[[At], str]:
    """A function that names the models of a place, each looked up once; unknown models are a separate kind."""

    @functools.cache
    def model(spot: Spot) -> str:
        gpus = record.nodes[spot.node].gpus
        chosen = gpus if spot.gpu < 0 else gpus[spot.gpu : spot.gpu + 1]
        names = {"unknown" if isinstance(gpu.model, Absent) else gpu.model for gpu in chosen}
        return f"{len(chosen)} {'/'.join(sorted(names))}"

    def of(at: At) -> str:
        if len(at) == 1:
            return model(at[0])
        return f"{len(at)} places: {' + '.join(sorted({model(spot) for spot in at}))}"

    return of


def _centres(members: Sequence[At], values: Mapping[At, float]) -> dict[At, float]:
    """The centre for each place: the median of its position over the nodes, or of all places if nodes are few."""
    positions: dict[int, list[At]] = {}
    for at in members:
        positions.setdefault(at[0].gpu if len(at) == 1 else -1, []).append(at)
    if all(len(places) >= _NODES_FOR_POSITIONS for places in positions.values()):
        return {at: centre for places in positions.values() for at, centre in _middle(places, values).items()}
    return _middle(members, values)


def _middle(members: Sequence[At], values: Mapping[At, float]) -> dict[At, float]:
    centre = middle([values[at] for at in members])
    return dict.fromkeys(members, centre)


def _noise(measure: Measure) -> float:
    """The usual standard error of a place's own median, relative to it; some hundred places are enough for it."""
    enough = [reading for reading in measure.readings if len(reading.samples) >= FEWEST_PEERS]
    errors = [_standard_error(reading) for reading in enough[:: max(1, len(enough) // 300)]]
    return middle(errors) if errors else 0.0


def _standard_error(reading: FleetReading) -> float:
    usual = middle(reading.samples)
    if usual <= 0:
        return 0.0
    deviation = _CONSISTENT * middle([abs(value - usual) for value in reading.samples])
    return 1.25 * deviation / math.sqrt(len(reading.samples)) / usual


def _again(
    later: Iterable[Mapping[At, float]],
    centres: Mapping[At, float],
    sign: float,
    relative: Mapping[At, float],
    z: Mapping[At, float],
) -> dict[At, float]:
    """r at the later attempts (the mean if several), minus the common shift of all healthy places."""
    found: dict[At, list[float]] = {}
    for values in later:
        again = {at: distance(value, centres[at], sign) for at, value in values.items() if at in centres}
        moved = [again[at] - relative[at] for at in again if z[at] > -2.0]
        shift = middle(moved) if len(moved) >= FEWEST_PEERS else 0.0
        for at, r in again.items():
            found.setdefault(at, []).append(r - shift)
    return {at: sum(rs) / len(rs) for at, rs in found.items()}


def _family(kind: str, load: Load, members: tuple[Scored, ...]) -> Family:
    means = _means([scored.z for scored in members])
    centre, width = yardstick(list(means.values()), _MEAN_SPREAD) if len(members) > 1 else (0.0, 1.0)
    relative = _means([scored.relative for scored in members])
    peers = {at: max(scored.peers.get(at, 0) for scored in members) for at in means}
    z = {at: (mean - centre) / width for at, mean in means.items()}
    z_again = {at: (mean - centre) / width for at, mean in _means([scored.z_again for scored in members]).items()}
    relative_again = _means([scored.again for scored in members])
    for scored in members:
        for at, own in scored.z.items():
            if own + ALONE < min(z[at], _LOOK_AT):
                z[at], relative[at] = own + ALONE, scored.relative[at]
                if at in scored.again:
                    z_again[at], relative_again[at] = scored.z_again[at] + ALONE, scored.again[at]
    return Family(
        kind=kind,
        load=load,
        scored=members,
        z=z,
        relative=relative,
        peers=peers,
        spread=middle([scored.spread for scored in members]),
        z_again=z_again,
        relative_again=relative_again,
    )


def _means(maps: Sequence[Mapping[At, float]]) -> dict[At, float]:
    sums: dict[At, float] = {}
    counts: dict[At, int] = {}
    for one in maps:
        for at, value in one.items():
            sums[at] = sums.get(at, 0.0) + value
            counts[at] = counts.get(at, 0) + 1
    return {at: value / counts[at] for at, value in sums.items()}
