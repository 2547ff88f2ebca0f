"""Estimate the length of a job's step from how often its main thread fetches data, since the job does not count it."""

from __future__ import annotations

from gpudoc.doctor.live.phases import DATA, classify
from gpudoc.doctor.live.shares import RankShares, entries
from gpudoc.facts.process import Stacks, Watch
from gpudoc.frozen import dataclass
from gpudoc.units import format_seconds

# random samples enter a phase of share p with probability p (1 - p) each; below this part of that, they show steps
RESOLVED = 0.7
FEWEST_STEPS = 4
CROWDED = 1.3


@dataclass(frozen=True, slots=True)
class JobPace:
    """The estimated length of a step in seconds; `at_most_s` is the only known bound if steps are too short to see."""

    seconds: float
    at_most_s: float | None = None

    def __str__(self) -> str:
        known = f"less than {format_seconds(self.at_most_s)}" if self.at_most_s is not None else ""
        return known or f"about {format_seconds(self.seconds)}"


def step_pace(watch: Watch, lead: RankShares) -> JobPace | None:
    """The pace of the leading rank, from the whole watch or else from the close-up; None if neither shows it."""
    if not isinstance(watch.stacks, Stacks):
        return None
    stretch = crowd_stretch(lead)
    seen = _pace(watch.stacks, lead.pid, stretch)
    if seen is not None and seen.at_most_s is None:
        return seen
    return _pace(watch.close_up, lead.pid, stretch) if isinstance(watch.close_up, Stacks) else None


def is_crowded(lead: RankShares) -> bool:
    """Whether the main thread takes much longer for its work because other processes have the CPUs."""
    return crowd_stretch(lead) >= CROWDED


def crowd_stretch(lead: RankShares) -> float:
    """How many times as long the main thread's CPU work takes because others have the CPUs; at least 1."""
    return lead.cpu_wanted / lead.cpu if lead.cpu > 0 else 1.0


def _pace(stacks: Stacks, pid: int, stretch: float) -> JobPace | None:
    """The pace from counted entries into the data phases; only a bound if the samples cannot resolve the steps.

    A thread that waits for a CPU is seen in one place again and again, which looks like a long step: if the machine is
    crowded (`stretch` is how much longer everything takes), only samples that differ from the one before count.
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
    # between ordered and random samples, the length is between the counted one and half of the shortest visible one
    doubt = min(1.0, max(0.0, (by_lot - RESOLVED) / (1 - RESOLVED)))
    seconds = counted_s ** (1 - doubt) * min(counted_s, bound_s / 2) ** doubt
    return JobPace(seconds, bound_s if doubt > 0.5 else None)
