"""How long one step of a job takes, from how often its main thread goes for data: nothing in the job counts for us."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gpudoc.doctor.live.phases import DATA, Phase, classify
from gpudoc.doctor.live.shares import RankShares
from gpudoc.facts.process import Stacks, Watch

# samples that follow each other as if drawn by lot are further apart than a step is long
RESOLVED = 0.7
FEWEST_STEPS = 4


@dataclass(frozen=True, slots=True)
class Pace:
    """The length of a step in seconds, with its data; `at_most` when steps are shorter than could be told apart."""

    seconds: float
    at_most: bool = False

    @property
    def typical_s(self) -> float:
        """The length to reckon with: of steps that are only known to be shorter, half of the bound."""
        return self.seconds / 2 if self.at_most else self.seconds


def step_pace(watch: Watch, lead: RankShares) -> Pace | None:
    """The pace of the leading rank, from the whole watch or else from the close-up; None when neither shows it."""
    if not isinstance(watch.stacks, Stacks):
        return None
    seen = _pace(lead.timeline, watch.stacks.rate_hz)
    if seen is not None and not seen.at_most:
        return seen
    if not isinstance(watch.close_up, Stacks):
        return None
    return _pace(_timeline(watch.close_up, lead.pid), watch.close_up.rate_hz)


def _timeline(stacks: Stacks, pid: int) -> list[Phase]:
    samples = next((t.samples for t in stacks.threads if t.is_main and t.pid == pid), ())
    known = {s: classify([stacks.frames[i] for i in s], stacks.lines).phase for s in set(samples)}
    return [known[sample] for sample in samples]


def _pace(timeline: Sequence[Phase], rate_hz: float) -> Pace | None:
    """Steps counted as entries into the data phases; fewer than the samples can resolve make a bound of it."""
    data = [phase in DATA for phase in timeline]
    entries = sum(here and not before for before, here in pairwise(data))
    if entries < FEWEST_STEPS:
        return None
    share = sum(data) / len(data)
    if entries > RESOLVED * share * (1 - share) * len(data):
        return Pace(1 / rate_hz, at_most=True)
    return Pace(len(data) / rate_hz / entries)
