"""Which GPU, node, switch, rail or path is odd: the largest part that explains the slowness, and nothing below it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

from gpudoc.facts.model import Absent
from gpudoc.fleet.record import FleetRecord, Measure, Spot
from gpudoc.fleet.scores import FEWEST_PEERS, SPREADS, At, Family, Scored, distance, kind_of, values_of, yardstick
from gpudoc.stats import median

Level = Literal["gpu", "node", "link", "path", "switch", "rail", "group"]

# the probability that a healthy GPU is named, over all judgements of it
RATE = 1 / 16_000
# the smallest loss that a job notices: first parts that it waits for, then parts that it overlaps or reads ahead
WORTH = {"compute": 0.03, "memory": 0.03, "network": 0.03, "GPU link": 0.05, "host link": 0.08}
_WORTH_OTHER = 0.15
# a place is measured again from this far below the threshold on
_MARGIN = 0.7
# a node or switch is ill if most of its parts are slow
_MOST, _PART_SLOW = 0.75, -1.5
# if more than this share differs, the peers cannot serve as a yardstick
_SPLIT = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Oddity:
    """One odd place in one family, compared with `peers` similar places.

    `sigma` and `loss` are of the first attempt; those of the second are None if it was not measured again.
    """

    level: Level
    at: At
    family: Family
    sigma: float
    loss: float
    peers: int
    limit: float
    sigma_again: float | None = None
    loss_again: float | None = None

    @property
    def is_named(self) -> bool:
        """Whether it is beyond the threshold: with the mean of both attempts if there are two."""
        if self.sigma_again is None:
            return self.sigma >= self.limit
        return self.is_confirmed

    @property
    def is_confirmed(self) -> bool:
        """Whether a second measurement, by itself, says so too."""
        again = self.sigma_again
        return again is not None and again >= self.limit - 1 and (self.sigma + again) / 2 >= self.limit


def threshold(found: Sequence[Family]) -> float:
    """The number of standard deviations that is odd: RATE, shared by families whose normal spread is worth a drain."""
    contested = sum(1 for family in found if family.kind in WORTH and 4.5 * family.spread >= worth(family.kind))
    return -NormalDist().inv_cdf(RATE / max(1, contested))


def limit_for(peers: int, base: float) -> float:
    """The threshold for this number of peers: with few peers the spread is uncertain."""
    return base * (1 + 6 / peers)


def worth(kind: str) -> float:
    """The smallest loss that is worth an action."""
    return WORTH.get(kind, _WORTH_OTHER)


def find_odd(record: FleetRecord, found: Sequence[Family]) -> list[Oddity]:
    """Every place that is odd or nearly so, the largest first; `is_named` distinguishes them."""
    base = threshold(found)
    candidates: list[Oddity] = []
    for family in found:
        scope = family.scored[0].measure.scope
        candidates += list(_of_family(record, family, base))
        if scope == "pair":
            candidates += [*_rails(record, family, base), *_paths(family, base)]
    return candidates


def _of_family(record: FleetRecord, family: Family, base: float) -> Iterator[Oddity]:
    scope = family.scored[0].measure.scope
    if scope in ("rail", "group"):
        level: Level = "rail" if scope == "rail" else "group"
        yield from _singles(family, level, list(family.z), base, {})
        return
    single: Level = "node" if scope == "node" else "link" if scope == "pair" else "gpu"
    by_node: dict[int, list[At]] = {}
    for at in family.z:
        by_node.setdefault(at[0].node, []).append(at)
    parts = {number: places for number, places in by_node.items() if len(places) > 1}
    ill: dict[At, float] = {}
    if scope != "node" and parts:
        switches = list(_groups(family, _by_switch(record, parts), "switch", base))
        yield from switches
        below = {spot.node for one in switches if one.is_named for spot in one.at}
        nodes = [one for one in _groups(family, parts, "node", base) if one.at[0].node not in below]
        yield from nodes
        for one in (*switches, *nodes):
            if one.is_named:
                places = [at for spot in one.at for at in by_node[spot.node]]
                ill.update(dict.fromkeys(places, median([family.z[at] for at in places])))
    yield from _singles(family, single, list(family.z), base, ill)


def _by_switch(record: FleetRecord, parts: Mapping[int, list[At]]) -> dict[int, list[At]]:
    """The places under each switch, by the first node under it; empty if any switch is unknown."""
    found: dict[str, list[int]] = {}
    for number in parts:
        switch = record.nodes[number].switch
        if isinstance(switch, Absent):
            return {}
        found.setdefault(switch, []).append(number)
    return {nodes[0]: [at for n in nodes for at in parts[n]] for nodes in found.values() if len(nodes) > 1}


def _groups(family: Family, parts: Mapping[int, list[At]], level: Level, base: float) -> Iterator[Oddity]:
    """Nodes or switches with mostly slow parts, compared with the other nodes or switches."""
    if len(parts) < FEWEST_PEERS:
        return
    middles = {number: median([family.z[at] for at in places]) for number, places in parts.items()}
    usual = median(list(middles.values()))
    prior = 1.25 / math.sqrt(median([len(places) for places in parts.values()]))
    below, width = yardstick([value - usual for value in middles.values()], prior)
    centre = usual + below
    limit = limit_for(len(parts), base)
    for number, places in parts.items():
        sigma = (centre - middles[number]) / width
        loss = _loss([family.relative[at] for at in places])
        slow = sum(family.z[at] <= _PART_SLOW for at in places)
        if sigma < limit - _MARGIN or loss < worth(family.kind) or slow < _MOST * len(places):
            continue
        again = [family.z_again[at] for at in places if at in family.z_again]
        relative_again = [family.relative_again[at] for at in places if at in family.relative_again]
        yield Oddity(
            level=level,
            at=tuple(Spot(node) for node in sorted({at[0].node for at in places})),
            family=family,
            sigma=sigma,
            loss=loss,
            peers=len(parts),
            limit=limit,
            sigma_again=(centre - median(again)) / width if len(again) >= _MOST * len(places) else None,
            loss_again=_loss(relative_again) if relative_again else None,
        )


def _singles(
    family: Family, level: Level, places: Sequence[At], base: float, ill: Mapping[At, float]
) -> Iterator[Oddity]:
    """Places that are odd by themselves; on an ill node only those that are odd even there (`ill`: the node's z)."""
    for at in places:
        peers = family.peers[at]
        if peers < FEWEST_PEERS:
            continue
        limit = limit_for(peers, base)
        own = ill.get(at, 0.0)
        sigma, loss = own - family.z[at], _loss([family.relative[at]])
        if sigma < limit - _MARGIN or loss < worth(family.kind):
            continue
        again = family.z_again.get(at)
        relative_again = family.relative_again.get(at)
        yield Oddity(
            level=level,
            at=at,
            family=family,
            sigma=sigma,
            loss=loss,
            peers=peers,
            limit=limit,
            sigma_again=None if again is None else own - again,
            loss_again=None if relative_again is None else _loss([relative_again]),
        )


def _rails(record: FleetRecord, family: Family, base: float) -> Iterator[Oddity]:
    """Rails on which all ends are slow, compared with the other rails; positions on the node are not removed here."""
    if family.kind != "network":
        return
    rail_of = _rail_namer(record)
    medians: list[dict[str, float]] = []
    ends: dict[str, list[Spot]] = {}
    for scored in family.scored:
        rails: dict[str, list[float]] = {}
        for at, value in scored.values.items():
            if at[0].gpu >= 0:
                rails.setdefault(rail_of(at[0]), []).append(value)
                ends.setdefault(rail_of(at[0]), []).append(at[0])
        medians.append({rail: median(values) for rail, values in rails.items() if len(values) >= FEWEST_PEERS})
    if not medians or len(medians[0]) < FEWEST_PEERS:
        return
    relative = {
        rail: sum(distance(one[rail], median(list(one.values())), 1.0) for one in medians) / len(medians)
        for rail in medians[0]
        if all(rail in one for one in medians)
    }
    _, width = yardstick(list(relative.values()), SPREADS["network"] / 2)
    limit = limit_for(len(relative), base)
    for rail, r in relative.items():
        if -r / width >= limit and _loss([r]) >= worth(family.kind):
            yield Oddity(
                level="rail",
                at=tuple(sorted(set(ends[rail]))),
                family=family,
                sigma=-r / width,
                loss=_loss([r]),
                peers=len(relative),
                limit=limit,
            )


def _rail_namer(record: FleetRecord) -> Callable[[Spot], str]:
    def of(spot: Spot) -> str:
        rail = record.nodes[spot.node].gpus[spot.gpu].rail
        return f"position {spot.gpu}" if isinstance(rail, Absent) else rail

    return of


def _paths(family: Family, base: float) -> Iterator[Oddity]:
    """Pairs that are slow although both ends are fast with other partners: the path between them is odd."""
    for scored in family.scored:
        measure = scored.measure
        below = _below_ends(measure, scored.values)
        if len(below) < FEWEST_PEERS:
            continue
        centre, width = yardstick(list(below.values()), SPREADS[kind_of(measure)])
        limit = limit_for(len(below), base)
        for at, r in below.items():
            if (centre - r) / width >= limit and _loss([r]) >= worth(family.kind):
                yield Oddity(
                    level="path",
                    at=at,
                    family=replace(family, scored=(scored,)),
                    sigma=(centre - r) / width,
                    loss=_loss([r]),
                    peers=len(below),
                    limit=limit,
                )


def _below_ends(measure: Measure, ends: Mapping[At, float]) -> dict[At, float]:
    sign = 1.0 if measure.better == "higher" else -1.0
    worse = min if measure.better == "higher" else max
    pairs = values_of(replace(measure, scope="group"))
    return {at: distance(value, worse(ends[spot,] for spot in at), sign) for at, value in pairs.items()}


def is_split(odd: Sequence[Oddity]) -> bool:
    """Whether so large a share of places of one level and family is odd that the rest cannot be the yardstick."""
    named = [one for one in odd if one.is_named]
    return bool(named) and named[0].peers > FEWEST_PEERS + 1 and len(named) > _SPLIT * named[0].peers


@dataclass(frozen=True, slots=True)
class SplitMeasure:
    """A measure with a quarter of the places or more far below the median: two kinds of places, not an odd one."""

    scored: Scored
    loss: float
    below: At


def find_splits(found: Sequence[Family]) -> Iterator[SplitMeasure]:
    """Measures whose lower quartile is below the median by at least twice the loss that is worth an action."""
    for family in found:
        for scored in family.scored:
            ordered = sorted(scored.relative.values())
            quarter = _loss([ordered[len(ordered) // 4]])
            if len(ordered) > FEWEST_PEERS and family.kind in WORTH and quarter >= 2 * worth(family.kind):
                below = [at for at, r in scored.relative.items() if _loss([r]) >= quarter / 2]
                yield SplitMeasure(scored, quarter, tuple(sorted(spot for at in below for spot in at)))


def _loss(relative: Sequence[float]) -> float:
    """The missing share that corresponds to these distances from the median."""
    return 1 - math.exp(median(list(relative)))
