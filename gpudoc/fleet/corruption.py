"""Silent corruption: equal GPUs must compute the same bits from the same input; the minority is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpudoc.facts.model import Absent, Fact
from gpudoc.fleet.record import Digest, FleetRecord, Spot

# the product is not deterministic if more than this share of equal GPUs disagrees with itself
_UNSTEADY = 0.2
_VOTERS = ("driver", "cublas")


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrupt:
    """A GPU whose products had different bits: which products, how often of how many, and the second run's result.

    `alone` is True if it disagrees with itself, which needs no other GPU as evidence. `undecided` are GPUs of which
    one is wrong, but too few to decide which.
    """

    at: Spot
    products: tuple[str, ...]
    wrong: int
    repeats: int
    voters: int
    alone: bool
    hot_only: bool
    confirmed: bool
    measured_again: bool
    undecided: tuple[Spot, ...] = ()


@dataclass(frozen=True, slots=True)
class NotVoted:
    """Products that could not be judged on these GPUs, and why."""

    at: tuple[Spot, ...]
    product: str
    because: str


@dataclass(frozen=True, slots=True)
class _Wrong:
    digest: Digest
    count: int
    voters: int
    alone: bool
    rivals: tuple[Spot, ...] = ()


def find_corrupt(record: FleetRecord) -> tuple[list[Corrupt], list[NotVoted]]:
    """The GPUs that are outvoted or disagree with themselves, and the products that could not be judged."""
    cohorts: dict[tuple[str, ...], list[Digest]] = {}
    unjudged: list[NotVoted] = []
    unknown: dict[tuple[str, str], list[Spot]] = {}
    for digest in record.digests:
        key = _cohort(digest, record)
        if isinstance(key, Absent):
            unknown.setdefault((digest.product, key.reason), []).append(digest.at)
        else:
            cohorts.setdefault(key, []).append(digest)
    unjudged += [NotVoted(tuple(dict.fromkeys(at)), product, why) for (product, why), at in unknown.items()]
    wrong: list[_Wrong] = []
    for members in cohorts.values():
        judged = _vote(members)
        if isinstance(judged, NotVoted):
            unjudged.append(judged)
        else:
            wrong += judged
    again = {digest.at for digest in record.digests if digest.attempt > 1}
    by_spot: dict[Spot, list[_Wrong]] = {}
    for one in wrong:
        by_spot.setdefault(one.digest.at, []).append(one)
    return [_corrupt(at, found, at in again) for at, found in sorted(by_spot.items())], unjudged


def _cohort(digest: Digest, record: FleetRecord) -> Fact[tuple[str, ...]]:
    """The facts that must be equal to compare two digests; Absent with the missing fact."""
    node = record.nodes[digest.at.node]
    model = node.gpus[digest.at.gpu].model if digest.at.gpu >= 0 else Absent("not a GPU")
    if isinstance(model, Absent):
        return Absent(f"the GPU's model is not known: {model.reason}")
    parts = [digest.product, model]
    for name in _VOTERS:
        version = node.versions.get(name, Absent("not read"))
        if isinstance(version, Absent):
            return Absent(f"the version of {name} is not known: {version.reason}")
        parts.append(version)
    # the same algorithm if it is known; otherwise equal software chooses the same one
    parts.append("" if isinstance(digest.algorithm, Absent) else digest.algorithm)
    return tuple(parts)


def _vote(members: Sequence[Digest]) -> list[_Wrong] | NotVoted:
    spots = {digest.at for digest in members}
    unsteady = {digest.at for digest in members if len(digest.seen) > 1}
    product = members[0].product
    if len(spots) > 2 and len(unsteady) > max(1.0, _UNSTEADY * len(spots)):
        why = f"{len(unsteady)} of {len(spots)} equal GPUs disagree with themselves, so it is not deterministic there"
        return NotVoted(tuple(sorted(spots)), product, why)
    votes: Counter[str] = Counter()
    seen: dict[Spot, Counter[str]] = {}
    for digest in members:
        seen.setdefault(digest.at, Counter()).update(digest.seen)
    votes.update(counts.most_common(1)[0][0] for counts in seen.values() if counts)
    right, most = votes.most_common(1)[0] if votes else ("", 0)
    if most * 2 <= len(spots) and len(votes) > 1:
        return list(_without_majority(members, tuple(sorted(spots))))
    if len(spots) == 1 and not unsteady:
        return NotVoted(tuple(spots), product, "no equal GPU to compare with")
    return [
        _Wrong(digest, sum(n for seen, n in digest.seen.items() if seen != right), most, digest.at in unsteady)
        for digest in members
        if any(seen != right for seen in digest.seen)
    ]


def _without_majority(members: Sequence[Digest], spots: tuple[Spot, ...]) -> Iterator[_Wrong]:
    """No digest has a majority: a GPU that disagrees with itself is wrong; otherwise any of them may be."""
    unsteady = [digest for digest in members if len(digest.seen) > 1]
    for digest in unsteady or members:
        usual = max(digest.seen.values(), default=0)
        count = sum(digest.seen.values()) - usual if unsteady else sum(digest.seen.values())
        yield _Wrong(digest, count, len(spots), bool(unsteady), () if unsteady else spots)


def _corrupt(at: Spot, found: Sequence[_Wrong], measured_again: bool) -> Corrupt:
    rivals = tuple(dict.fromkeys(spot for one in found for spot in one.rivals))
    return Corrupt(
        at=at,
        products=tuple(dict.fromkeys(one.digest.product for one in found)),
        wrong=sum(one.count for one in found),
        repeats=sum(sum(one.digest.seen.values()) for one in found),
        voters=max(one.voters for one in found),
        alone=any(one.alone for one in found),
        hot_only=all(one.digest.hot for one in found),
        confirmed=not rivals and {one.digest.attempt > 1 for one in found} == {False, True},
        measured_again=measured_again,
        undecided=rivals,
    )
