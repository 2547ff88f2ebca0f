"""The wording of a watched job's findings: places in the user's code, shares of time, gains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from gpudoc.doctor.live.phases import Phase
from gpudoc.doctor.live.shares import RankShares, Site
from gpudoc.doctor.model import Finding, Observation, Remedy
from gpudoc.facts.process import Frame, Watch

STACKS = "py-spy, 20 Hz"
PROC = "/proc"
NVML = "NVML, 10 Hz"
MODEL = "estimate"
GAIN = "estimated_gain"
# in a finding that more workers would not fix
NO_GAIN = "with_workers"

# a slow job still works; jobs with these findings do not do their task
_BROKEN = ("job_hung", "training_on_cpu")


def place(frame: Frame, watch: Watch) -> str:
    """The frame as people write it: 'train.py:41', with a path relative to the job's folder if it is below that."""
    path = PurePosixPath(frame.file)
    if isinstance(watch.directory, str) and path.is_relative_to(watch.directory):
        return f"{path.relative_to(watch.directory)}:{frame.line}"
    return f"{'/'.join(path.parts[-2:])}:{frame.line}"


def percent(share: float) -> str:
    """A share as '62 %'."""
    return f"{100 * share:.0f} %"


def at_sites(sites: Sequence[Site], watch: Watch, what: str) -> tuple[Observation, ...]:
    """Observations of the lines behind a phase, most time first."""
    return tuple(
        Observation(what, f"{place(s.frame, watch)} {percent(s.share)}  {s.text}".rstrip(), STACKS)
        for s in sites[:3]
        if s.share >= 0.02
    )


def spent(watch: Watch, lead: RankShares, fact: str, at: str, *phases: Phase) -> tuple[Observation, ...]:
    """The share of the main thread's time in these phases as `fact`, and each line behind it as `at`."""
    share = Observation(fact, f"{percent(lead.share(*phases))} of the main thread's time", STACKS)
    return (share, *at_sites(lead.lines(*phases), watch, at))


def worst_place(watch: Watch, lead: RankShares, *phases: Phase, otherwise: str = "unknown") -> str:
    """The line behind these phases that takes the most time; `otherwise` if none is the user's."""
    lines = lead.lines(*phases)
    return place(lines[0].frame, watch) if lines else otherwise


def estimated(gain: float) -> Observation:
    """The gain as an observation, marked as an estimate."""
    return Observation(GAIN, f"{gain:.2f}x", MODEL)


def finding(
    name: str,
    *,
    lost: float,
    title: str,
    evidence: Sequence[Observation],
    fix: Sequence[Remedy] = (),
    sure: float = 0.6,
) -> Finding:
    """A finding whose place in the list depends on the time that it costs; `sure` is its confidence at no cost.

    `fix` is for advice with this job's numbers or lines; without it, the catalogue's advice is used.
    """
    # a report keeps the first few observations of a finding, and the gain must be among them
    ordered = sorted(enumerate(evidence), key=lambda pair: 0.5 if pair[1].fact in (GAIN, NO_GAIN) else pair[0])
    confidence = min(0.98, sure + (0.98 - sure) * min(1.0, max(0.0, lost)))
    return Finding(
        id=name,
        severity="broken" if name in _BROKEN else "warning",
        confidence=round(confidence, 3),
        title=title,
        evidence=tuple(observation for _, observation in ordered),
        fix=tuple(fix),
    )
