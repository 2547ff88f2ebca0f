"""Finds a rank that is slower than the others, by its own part of each step: the time without waiting for others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from gpudoc.units import format_seconds

# a straggler: slower than the others' median by this factor and this time per step, in this many rows and steps
SLOWER = 1.25
_LEAST_S = 1e-3
_ROWS = 3
_STEPS = 10


@dataclass(frozen=True, slots=True)
class Own:
    """A rank's own seconds over a stretch of steps: all time except waits for others, and its part for samples."""

    all_s: float
    read_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """A rank that the others wait for: its own seconds per step and the others' median; `facts`: possible reasons.

    `where` is 'reading samples' or 'computing', the part that takes longer than the others'.
    """

    rank: int
    step_s: float
    others_s: float
    where: str
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def factor(self) -> float:
        """How many times as long as the others it takes."""
        return self.step_s / max(self.others_s, 1e-9)

    def document(self) -> dict[str, object]:
        """The same as plain data."""
        return {
            "rank": self.rank,
            "factor": round(self.factor, 3),
            "step_s": self.step_s,
            "others_s": self.others_s,
            "where": self.where,
            **self.facts,
        }

    def say(self) -> str:
        """The message for the user."""
        told = f"rank {self.rank} is {self.factor:.2g} times as slow as the others in {self.where}: "
        own, others = format_seconds(self.step_s), format_seconds(self.others_s)
        told += f"{own} a step, while the others take {others} and then wait for it"
        known = [f"{name.replace('_', ' ')} {value}" for name, value in self.facts.items() if value not in (None, "")]
        return f"{told} ({', '.join(known)})" if known else told


class RankPace:
    """Judges rows of (steps, each rank's own part), and adds them up over the run. All ranks get the same result.

    `ask` takes a rank's number and returns that rank's facts about itself on every rank: a collective.
    """

    def __init__(self, world: int, ask: Callable[[int], Mapping[str, object]]) -> None:
        self._ask = ask
        self._rows: deque[tuple[int, list[Own]]] = deque()
        self._steps = 0
        self._totals = [Own(0.0, 0.0)] * world
        self.slow: Slow | None = None

    def take(self, steps: int, row: Sequence[Own]) -> Slow | None:
        """Add a row; returns the rank that has been slow for some rows, None if none is."""
        if steps < 1 or len(row) < 2:
            return None
        self._steps += steps
        self._totals = [Own(a.all_s + b.all_s, a.read_s + b.read_s) for a, b in zip(self._totals, row, strict=True)]
        self._rows.append((steps, list(row)))
        while len(self._rows) > _ROWS and sum(n for n, _ in list(self._rows)[1:]) >= _STEPS:
            self._rows.popleft()
        self.slow = self._judge()
        return self.slow

    def document(self) -> dict[str, object] | None:
        """Each rank's own seconds per step over the run, and the slow rank at its end; None for one rank."""
        if self._steps == 0:
            return None
        return {
            "step_s": [own.all_s / self._steps for own in self._totals],
            "read_s": [own.read_s / self._steps for own in self._totals],
            "slow": None if self.slow is None else self.slow.document(),
        }

    def _judge(self) -> Slow | None:
        count = sum(steps for steps, _ in self._rows)
        if len(self._rows) < _ROWS or count < _STEPS:
            return None
        slowest = {_slowest(steps, row) for steps, row in self._rows}
        if len(slowest) > 1 or None in slowest:
            return None
        rank = slowest.pop()
        assert rank is not None
        sums = [
            Own(sum(row[r].all_s for _, row in self._rows) / count, sum(row[r].read_s for _, row in self._rows) / count)
            for r in range(len(self._totals))
        ]
        others = [own for r, own in enumerate(sums) if r != rank]
        read_s, others_s = median(own.read_s for own in others), median(own.all_s for own in others)
        excess = sums[rank].all_s - others_s
        known = self.slow.facts if self.slow is not None and self.slow.rank == rank else self._ask(rank)
        return Slow(
            rank=rank,
            step_s=sums[rank].all_s,
            others_s=others_s,
            where="reading samples" if sums[rank].read_s - read_s > excess / 2 else "computing",
            facts=known,
        )


def _slowest(steps: int, row: Sequence[Own]) -> int | None:
    rank = max(range(len(row)), key=lambda r: row[r].all_s)
    others = median(own.all_s for r, own in enumerate(row) if r != rank)
    mine = row[rank].all_s
    return rank if mine >= SLOWER * others and mine - others >= _LEAST_S * steps else None
