"""Compares two records of a fleet: the same cards then and now, what got worse since, and other changes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent
from gpudoc.fleet.oddities import limit_for, worth
from gpudoc.fleet.record import FleetRecord, Measure, Spot
from gpudoc.fleet.scores import FEWEST_PEERS, SPREADS, At, distance, kind_of, middle, values_of, yardstick
from gpudoc.fleet.software import differences
from gpudoc.fleet.verdict import FleetVerdict

# the least distance of a card's change from the others', in standard deviations
_LIMIT = 4.0
# the least common change of all cards that is reported
_ALL = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One measure at one place that changed more than elsewhere; the place is the new record's."""

    key: str
    at: At
    old: float
    new: float
    unit: str
    ratio: float
    sigma: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """One measure that changed on all places together: the medians, and new over old (above 1 is better)."""

    key: str
    places: int
    old: float
    new: float
    unit: str
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetComparison:
    """Places that got worse, common shifts, new and resolved findings, and places that came and went."""

    worse: tuple[Change, ...]
    better: tuple[Change, ...]
    shifts: tuple[Shift, ...]
    appeared: tuple[str, ...]
    mended: tuple[str, ...]
    versions: tuple[str, ...]
    matched: int
    only_old: int
    only_new: int

    @property
    def is_worse(self) -> bool:
        """Whether anything got worse: one place, all places, or the findings."""
        return bool(self.worse or self.appeared) or any(shift.ratio < 1 - _ALL for shift in self.shifts)


def compare(old: FleetRecord, new: FleetRecord, verdicts: tuple[FleetVerdict, FleetVerdict]) -> FleetComparison:
    """The changes from `old` to `new`; GpudocError (exit 2) if no card or node is in both, or versions differ."""
    before, now = (record.made.get("fleet_version", 1) for record in (old, new))
    if before != now:
        raise GpudocError(
            f"the records were measured in different ways: fleet_version was {before}, is {now}",
            hint="measure the old fleet again with this gpudoc",
        )
    places = _matched(old, new)
    if not places:
        raise GpudocError(
            "no GPU and no node is in both records",
            hint="compare records of the same fleet; cards are known by their UUID, nodes by /etc/machine-id",
        )
    changes, shifts = [], []
    for measure, was, has in _both(old, new):
        found, shift = _measure(measure, values_of(was), values_of(has), places)
        changes += found
        shifts += shift
    changes.sort(key=lambda one: -abs(one.sigma))
    appeared, mended = _findings(verdicts, places)
    gpus = {spot for spot in places.values() if spot.gpu >= 0}
    return FleetComparison(
        worse=tuple(one for one in changes if one.ratio < 1),
        better=tuple(one for one in changes if one.ratio > 1),
        shifts=tuple(shifts),
        appeared=appeared,
        mended=mended,
        versions=tuple(_versions(old, new)),
        matched=len(gpus),
        only_old=sum(1 for _ in old.spots()) - len(gpus),
        only_new=sum(1 for _ in new.spots()) - len(gpus),
    )


def _matched(old: FleetRecord, new: FleetRecord) -> dict[Spot, Spot]:
    """The new place of each old one that is certainly the same: a card by its id, else its place on a known node."""
    names = _names(new)
    return {spot: names[name] for name, spot in _names(old).items() if name in names}


def _names(record: FleetRecord) -> dict[tuple[object, ...], Spot]:
    """The place of each card and node by its identity; processes on CPUs, all with index 0, are numbered."""
    found: dict[tuple[object, ...], Spot] = {}
    for number, node in enumerate(record.nodes):
        if not isinstance(node.id, Absent):
            found["node", node.id] = Spot(number)
        for position, gpu in enumerate(node.gpus):
            if not isinstance(gpu.id, Absent):
                found["card", gpu.id] = Spot(number, position)
            elif not isinstance(node.id, Absent):
                same = sum(other.index == gpu.index for other in node.gpus[:position])
                found["place", node.id, gpu.index, same] = Spot(number, position)
    return found


def _both(old: FleetRecord, new: FleetRecord) -> Iterator[tuple[Measure, Measure, Measure]]:
    before = {measure.key: measure for measure in old.measures if measure.attempt == 1}
    for measure in new.measures:
        was = before.get(measure.key)
        # groups and rails depend on the size of the allocation: only GPUs, nodes and ends of links are comparable
        comparable = measure.scope in ("gpu", "node", "pair")
        if measure.attempt == 1 and was is not None and was.unit == measure.unit and comparable:
            yield measure, was, measure


def _measure(
    measure: Measure, was: Mapping[At, float], has: Mapping[At, float], places: Mapping[Spot, Spot]
) -> tuple[list[Change], list[Shift]]:
    sign = 1.0 if measure.better == "higher" else -1.0
    pairs = {
        (places[at[0]],): (value, has[(places[at[0]],)])
        for at, value in was.items()
        if len(at) == 1 and at[0] in places and (places[at[0]],) in has
    }
    moved = {at: distance(now, before, sign) for at, (before, now) in pairs.items()}
    if not moved:
        return [], []
    kind = kind_of(measure)
    usual = middle(list(moved.values()))
    # a card repeats its own value far better than cards agree with each other
    below, width = yardstick([r - usual for r in moved.values()], SPREADS[kind] / 3)
    limit = limit_for(len(moved), _LIMIT)
    changes = []
    for at, r in moved.items():
        sigma = (r - usual - below) / width
        enough = abs(sigma) >= limit and abs(1 - math.exp(r - usual)) >= worth(kind) and len(moved) >= FEWEST_PEERS
        # without peers only a change beyond any spread counts
        alone = len(moved) < FEWEST_PEERS and abs(r) >= max(worth(kind), 5 * SPREADS[kind])
        if enough or alone:
            before, now = pairs[at]
            changes.append(
                Change(
                    key=measure.key,
                    at=at,
                    old=before,
                    new=now,
                    unit=measure.unit,
                    ratio=math.exp(r if alone else r - usual),
                    sigma=sigma,
                )
            )
    if len(moved) < FEWEST_PEERS or abs(usual) < _ALL:
        return changes, []
    old_middle, new_middle = (middle([pair[i] for pair in pairs.values()]) for i in (0, 1))
    shift = Shift(
        key=measure.key,
        places=len(moved),
        old=old_middle,
        new=new_middle,
        unit=measure.unit,
        ratio=math.exp(usual),
    )
    return changes, [shift]


def _findings(
    verdicts: tuple[FleetVerdict, FleetVerdict], places: Mapping[Spot, Spot]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Titles of new findings, and of findings that have disappeared, matched by cause and place."""
    before, now = verdicts
    old = {(one.finding.id, places[s]): one.finding.title for one in before.named for s in one.at if s in places}
    new = {(one.finding.id, spot): one.finding.title for one in now.named for spot in one.at}
    known = set(places.values())
    appeared = dict.fromkeys(title for key, title in new.items() if key not in old and key[1] in known)
    mended = dict.fromkeys(title for key, title in old.items() if key not in new)
    return tuple(appeared), tuple(mended)


def _versions(old: FleetRecord, new: FleetRecord) -> Iterator[str]:
    before, now = _usual(old), _usual(new)
    for name in before:
        if name in now and before[name] != now[name]:
            yield f"{name} was {before[name]}, is {now[name]}"
    fresh = {one.what for one in differences(new)} - {one.what for one in differences(old)}
    yield from (f"{name} differs between nodes now" for name in sorted(fresh))


def _usual(record: FleetRecord) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for node in record.nodes:
        for name, version in node.versions.items():
            if not isinstance(version, Absent):
                found.setdefault(name, []).append(version)
    return {name: _most(values) for name, values in found.items()}


def _most(values: Sequence[str]) -> str:
    return max(sorted(set(values)), key=values.count)
