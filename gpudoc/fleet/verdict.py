"""A record in, a verdict out: which GPU, node, link, rail or switch is odd, what to do, and what it costs a job.

A pure function of the record. Unmeasured parts never count as healthy, and no node is drained after only one
measurement: `suspects` lists what to measure a second time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpudoc.doctor.model import Finding, Setting, Verdict
from gpudoc.doctor.registry import CATALOGUE, fill
from gpudoc.errors import ExitCode
from gpudoc.facts.model import Absent
from gpudoc.fleet.corruption import Corrupt, find_corrupt
from gpudoc.fleet.expectation import Expected, expectations
from gpudoc.fleet.nodes import (
    Named,
    below_model_finding,
    clock_findings,
    node_findings,
    silent_findings,
    software_findings,
)
from gpudoc.fleet.oddities import Oddity, find_odd, find_splits, is_split, threshold
from gpudoc.fleet.place import is_host
from gpudoc.fleet.record import FleetRecord, Measure, Spot
from gpudoc.fleet.scores import FEWEST_PEERS, At, Family, families
from gpudoc.fleet.software import Difference, differences
from gpudoc.fleet.wording import corrupt_finding, failed_finding, slow_finding, split_finding, spot_name, spots_name

# kinds in which slow places are reported, but no node is drained for them
_WATCHED = frozenset({"storage", "latency", "other"})
_DRAINED_LEVELS = frozenset({"gpu", "node", "link"})


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A part that could not be judged, its places and the reason; it never counts as healthy."""

    at: tuple[Spot, ...]
    what: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The loss of a synchronous job over all places to the slowest one: now, and without the nodes to drain.

    Shares of the speed it would have if every place were the median of its peers.
    """

    measure: str
    now: float
    without_drained: float
    slowest: At


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetVerdict:
    """The judgement. `cleared` looked odd only the first time; `limit` is the threshold in σ for many peers."""

    word: Verdict
    named: tuple[Named, ...]
    unjudged: tuple[Unjudged, ...]
    cleared: tuple[Oddity, ...]
    families: tuple[Family, ...]
    software: tuple[Difference, ...]
    expected: tuple[Expected, ...]
    loss: Loss | None
    limit: float

    @property
    def drained(self) -> tuple[int, ...]:
        """The nodes to drain: each was found twice, independently."""
        return tuple(sorted({spot.node for one in self.named if one.drain for spot in one.at}))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings, the worst first."""
        return tuple(one.finding for one in self.named)

    @property
    def exit_code(self) -> ExitCode:
        """1 if the answer is bad or missing, as for every report of doctor."""
        return ExitCode.BAD_ANSWER if self.word in ("broken", "unknown") else ExitCode.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A second measurement to make in new processes: this measure, product, doctor or node, here, with witnesses.

    `measure` is the first attempt's, None if `what` is not a measure; an end of a link needs other partners.
    """

    what: str
    at: tuple[Spot, ...]
    witnesses: tuple[Spot, ...] = ()
    measure: Measure | None = None
    product: str = ""


def judge(record: FleetRecord, ignore: Sequence[str] = ()) -> FleetVerdict:
    """The verdict of a whole record; findings whose id is in `ignore` are left out."""
    found = families(record)
    odd = find_odd(record, found)
    corrupt, unvoted = find_corrupt(record)
    software = differences(record)
    expected = expectations(record)
    named = [
        *_slow(record, odd),
        *(_corrupt(one) for one in corrupt),
        *_failed(record),
        *silent_findings(record),
        *node_findings(record),
        *software_findings(software, len(record.nodes)),
        *clock_findings(record),
        *_below_model(expected),
        *(
            Named(finding=split_finding(one), level="fleet", at=(), confirmed=False, drain=False)
            for one in find_splits(found)
        ),
    ]
    setting = Setting()
    named = [
        replace(one, finding=fill(one.finding, CATALOGUE, setting)) for one in named if one.finding.id not in ignore
    ]
    rank = {"broken": 0, "warning": 1, "info": 2}
    named.sort(key=lambda one: (not one.drain, rank[one.finding.severity], -(one.sigma or math.inf)))
    drained = {spot.node for one in named if one.drain for spot in one.at}
    unjudged = [*_unmeasured(record, found), *(Unjudged(one.at, one.product, one.because) for one in unvoted)]
    return FleetVerdict(
        word=_word(record, named, found),
        named=tuple(named),
        unjudged=tuple(unjudged),
        cleared=tuple(one for one in odd if one.sigma_again is not None and not one.is_confirmed),
        families=found,
        software=software,
        expected=expected,
        loss=_loss(found, drained),
        limit=threshold(found),
    )


def bad_hosts(record: FleetRecord, verdict: FleetVerdict) -> tuple[str, ...]:
    """The names of the nodes to drain, in the record's order; a saved record no longer contains them."""
    hosts = (record.nodes[number].host for number in verdict.drained)
    # a process with an unknown host is named by its rank, which no scheduler can drain
    return tuple(host for host in hosts if not isinstance(host, Absent) and is_host(host))


def suspects(record: FleetRecord) -> tuple[Suspect, ...]:
    """Everything that looks odd after one measurement."""
    found = []
    for odd in find_odd(record, families(record)):
        if odd.sigma_again is None and odd.level not in ("switch", "rail"):
            witnesses = _witnesses(odd)
            measures = [scored.measure for scored in odd.family.scored if _has(odd, scored.z)]
            found += [Suspect(what="measure", at=odd.at, witnesses=witnesses, measure=one) for one in measures]
    for corrupt in find_corrupt(record)[0]:
        if not corrupt.measured_again:
            others = [digest.at for digest in record.digests if digest.product in corrupt.products]
            beside = tuple(dict.fromkeys(at for at in others if at.node != corrupt.at.node))[:4]
            found += [Suspect(what="digest", at=(corrupt.at,), witnesses=beside, product=p) for p in corrupt.products]
    for at, measures, _ in _failing(record):
        if not any(measure.attempt > 1 for measure in measures):
            found += [Suspect(what="measure", at=at, measure=measure) for measure in measures]
    for number, node in enumerate(record.nodes):
        if node.missing is not None and node.missing.attempts < 2:
            found.append(Suspect(what="node", at=(Spot(number),)))
        elif isinstance(node.findings_again, Absent) and any(one.severity == "broken" for one in node.findings):
            found.append(Suspect(what="doctor", at=(Spot(number),)))
    return tuple(found)


def _has(odd: Oddity, z: Mapping[At, float]) -> bool:
    return odd.level in ("node", "path", "group") or odd.at in z


def _witnesses(odd: Oddity) -> tuple[Spot, ...]:
    """The most ordinary places on other nodes."""
    ill = {spot.node for spot in odd.at}
    beside = [at for at in odd.family.z if len(at) == 1 and at[0].node not in ill]
    return tuple(at[0] for at in sorted(beside, key=lambda at: abs(odd.family.z[at]))[:4])


def _slow(record: FleetRecord, odd: Sequence[Oddity]) -> Iterator[Named]:
    by_family: dict[tuple[str, str], list[Oddity]] = {}
    for one in odd:
        by_family.setdefault((one.family.name, one.level), []).append(one)
    split = {key for key, members in by_family.items() if is_split(members)}
    places: dict[tuple[str, At], list[Oddity]] = {}
    for one in odd:
        if one.is_named:
            places.setdefault((one.level, one.at), []).append(one)
    for (level, at), members in places.items():
        trusted = [one for one in members if (one.family.name, one.level) not in split]
        drain = level in _DRAINED_LEVELS and any(
            one.is_confirmed and one.family.kind not in _WATCHED for one in trusted
        )
        worst = max(members, key=lambda one: one.sigma)
        yield Named(
            finding=slow_finding(members, record, drain=drain),
            level=worst.level,
            at=at,
            confirmed=any(one.is_confirmed for one in members),
            drain=drain,
            sigma=worst.sigma,
            loss=max(one.loss for one in members),
            families=tuple(one.family.name for one in members),
        )


def _corrupt(one: Corrupt) -> Named:
    drain = one.confirmed and not one.undecided
    at = one.undecided or (one.at,)
    return Named(finding=corrupt_finding(one, drain=drain), level="gpu", at=at, confirmed=one.confirmed, drain=drain)


def _failing(record: FleetRecord) -> Iterator[tuple[At, list[Measure], str]]:
    """Places where a measure failed that ran on most other places, with its message."""
    found: dict[At, list[tuple[Measure, str]]] = {}
    for measure in record.measures:
        broken = [reading for reading in measure.readings if reading.failed and not reading.samples]
        first = measure if measure.attempt == 1 else _first_of(measure, record)
        ran = sum(1 for reading in first.readings if reading.samples)
        if broken and len(broken) < ran:
            for reading in broken:
                found.setdefault(reading.at, []).append((measure, reading.failed))
    for at, members in found.items():
        yield at, [measure for measure, _ in members], members[0][1]


def _first_of(measure: Measure, record: FleetRecord) -> Measure:
    return next((one for one in record.measures if one.attempt == 1 and one.key == measure.key), measure)


def _failed(record: FleetRecord) -> Iterator[Named]:
    for at, measures, because in _failing(record):
        attempts: dict[str, set[bool]] = {}
        for measure in measures:
            attempts.setdefault(measure.key, set()).add(measure.attempt > 1)
        twice = any(both == {False, True} for both in attempts.values())
        # it is unknown which member of a pair or a group caused the failure
        drain = twice and len({spot.node for spot in at}) == 1
        finding = failed_finding(at[0], measures, because, drain=drain)
        yield Named(finding=finding, level="gpu" if at[0].gpu >= 0 else "node", at=at, confirmed=twice, drain=drain)


def _below_model(expected: Sequence[Expected]) -> Iterator[Named]:
    for one in expected:
        if one.is_low:
            yield Named(finding=below_model_finding(one), level="fleet", at=(), confirmed=False, drain=False)


def _unmeasured(record: FleetRecord, found: Sequence[Family]) -> Iterator[Unjudged]:
    """GPUs that lack a figure, families with too few peers, nodes without a report of doctor."""
    answered = [number for number, node in enumerate(record.nodes) if node.missing is None]
    every = {spot for spot in record.spots() if spot.node in set(answered)}
    for measure in record.measures:
        if measure.scope == "gpu" and measure.attempt == 1:
            given = {spot for reading in measure.readings if reading.samples for spot in reading.at}
            # a copy from one GPU to another is measured at one of them
            here = {spot.gpu for spot in given}
            absent = {spot for spot in every - given if "from" not in measure.parameters or spot.gpu in here}
            said = {reading.failed for reading in measure.readings if reading.failed}
            if absent:
                because = "; ".join(sorted(said)[:2]) or "the record has no reading"
                yield Unjudged(tuple(sorted(absent)), measure.key, because)
    for family in found:
        # a fleet has one whole and two halves: they are shown, but they have no peers
        if family.scored[0].measure.scope == "group":
            continue
        few = tuple(at[0] for at, count in family.peers.items() if count < FEWEST_PEERS)
        if few:
            because = f"too few equal places to compare with: {FEWEST_PEERS} are needed"
            yield Unjudged(few, family.name, because)
    silent = [n for n in answered if isinstance(record.nodes[n].doctor, Absent)]
    if silent:
        reason = record.nodes[silent[0]].doctor
        because = reason.reason if isinstance(reason, Absent) else ""
        yield Unjudged(tuple(Spot(number) for number in silent), "doctor", because)


def _word(record: FleetRecord, named: Sequence[Named], found: Sequence[Family]) -> Verdict:
    if any(one.finding.severity == "broken" for one in named):
        return "broken"
    judged = any(count >= FEWEST_PEERS for family in found for count in family.peers.values())
    if not judged or record.interrupted or any(node.missing is not None for node in record.nodes):
        return "unknown"
    return "warning" if any(one.finding.severity == "warning" for one in named) else "healthy"


def _loss(found: Sequence[Family], drained: set[int]) -> Loss | None:
    """The loss by the training step if measured, else by the products; with all GPUs at once if measured so."""
    compute = [(family, scored) for family in found if family.kind == "compute" for scored in family.scored]
    compute.sort(key=lambda one: (not one[1].measure.name.startswith("train_step"), one[0].load != "together"))
    if not compute:
        return None
    relative, measure = compute[0][1].relative, compute[0][1].measure
    slowest = min(relative, key=lambda at: relative[at])
    kept = [r for at, r in relative.items() if at[0].node not in drained]
    return Loss(
        measure=measure.key,
        now=_share(relative[slowest]),
        without_drained=_share(min(kept)) if kept else 0.0,
        slowest=slowest,
    )


def _share(relative: float) -> float:
    return max(0.0, 1 - math.exp(relative))


def headline(record: FleetRecord, verdict: FleetVerdict) -> str:
    """The verdict in one sentence, with the loss of a job."""
    gpus = sum(len(node.gpus) for node in record.nodes)
    answered = sum(node.missing is None for node in record.nodes)
    size = f"{len(record.nodes)} nodes, {gpus} GPUs"
    if record.is_of_cpus:
        size = f"{len(record.nodes)} nodes, {gpus} processes on CPUs, each called a GPU below"
    if answered < len(record.nodes):
        size += f", {len(record.nodes) - answered} of the nodes did not answer"
    drained = verdict.drained
    if drained:
        what = f"{len(drained)} to drain: {spots_name([Spot(number) for number in drained])}"
    elif verdict.word == "unknown":
        what = "no verdict: some of what should be judged could not be"
    else:
        what = "nothing to drain"
    loss = "" if verdict.loss is None else f"; {loss_text(verdict.loss, bool(drained))}"
    return f"{size}: {what}{loss}"


def loss_text(loss: Loss, any_drained: bool) -> str:
    """The loss of a synchronous job over the whole fleet, and the loss that remains without the drained nodes."""
    left = f", {loss.without_drained:.1%} without the nodes to drain" if any_drained else ""
    where = spot_name(loss.slowest[0])
    return f"a synchronous job over all loses {loss.now:.1%} to its slowest ({where}, {loss.measure}){left}"
