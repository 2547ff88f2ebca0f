"""How long one step of a job takes, from how often its main thread goes for data: nothing in the job counts for us."""

from __future__ import annotations

from gpudoc.doctor.live.phases import DATA, classify
from gpudoc.doctor.live.shares import RankShares, entries
from gpudoc.facts.process import Stacks, Watch
from gpudoc.frozen import dataclass
from gpudoc.units import format_seconds

# samples drawn by lot enter a phase p (1 - p) times each: below this part of it they follow a step's order
RESOLVED = 0.7
FEWEST_STEPS = 4
CROWDED = 1.3


@dataclass(frozen=True, slots=True)
class JobPace:
    """The length of a step in seconds to reckon with; `at_most_s` is all that was seen when steps are too short."""

    seconds: float
    at_most_s: float | None = None

    def __str__(self) -> str:
        known = f"less than {format_seconds(self.at_most_s)}" if self.at_most_s is not None else ""
        return known or f"about {format_seconds(self.seconds)}"


def step_pace(watch: Watch, lead: RankShares) -> JobPace | None:
    """The pace of the leading rank, from the whole watch or else from the close-up; None when neither shows it."""
    if not isinstance(watch.stacks, Stacks):
        return None
    stretch = crowd_stretch(lead)
    seen = _pace(watch.stacks, lead.pid, stretch)
    if seen is not None and seen.at_most_s is None:
        return seen
    return _pace(watch.close_up, lead.pid, stretch) if isinstance(watch.close_up, Stacks) else None


def is_crowded(lead: RankShares) -> bool:
    """Whether the main thread takes much longer for all it does, because others have the CPUs."""
    return crowd_stretch(lead) >= CROWDED


def crowd_stretch(lead: RankShares) -> float:
    """How many times as long the main thread takes for what needs a CPU, because others have the CPUs; at least 1."""
    return lead.cpu_wanted / lead.cpu if lead.cpu > 0 else 1.0


def _pace(stacks: Stacks, pid: int, stretch: float) -> JobPace | None:
    """Steps counted as entries into the data phases; fewer than the samples can resolve make a bound of it.

    A thread that waits for a CPU is seen in one place again and again, which looks like a long step: where the machine
    is crowded (`stretch` is how much longer all takes), only samples between which something moved are counted.
    """
    samples = next((t.samples for t in stacks.threads if t.is_main and t.pid == pid), ())
    moved = [s for before, s in zip((None, *samples), samples, strict=False) if s != before]
    counted, length = (samples, 1.0) if stretch < CROWDED else (moved, stretch)
    known = {s: classify([stacks.frames[i] for i in s], stacks.lines).phase in DATA for s in set(samples)}
    data = [known[sample] for sample in counted]
    steps = entries(data)
    if steps < FEWEST_STEPS:
        return None
    share = sum(data) / len(data)
    by_lot = steps / max(share * (1 - share) * len(data), 1e-9)
    counted_s, bound_s = len(samples) / stacks.rate_hz / steps, length / stacks.rate_hz
    # between order and lot the length is between what was counted and half of what could have been seen
    doubt = min(1.0, max(0.0, (by_lot - RESOLVED) / (1 - RESOLVED)))
    seconds = counted_s ** (1 - doubt) * min(counted_s, bound_s / 2) ** doubt
    return JobPace(seconds, bound_s if doubt > 0.5 else None)
