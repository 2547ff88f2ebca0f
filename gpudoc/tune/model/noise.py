"""How much other work on the machine disturbed a search; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudoc.tune.trial.messages import (
    FELT_CPUS,
    HOT_SHARE,
    NEIGHBOUR_SHARE,
    STOLEN_SHARE,
    THROTTLED_SHARE,
    TIMED,
    Disturbance,
    Trial,
)


@dataclass(frozen=True, slots=True)
class Noise:
    """How many of `num_timed` speed trials were disturbed, and the most CPUs that other processes used.

    `told` names all disturbances, in words.
    """

    num_disturbed: int
    num_timed: int
    most_cpus: float
    told: str = ""

    def __str__(self) -> str:
        return (
            f"{self.told} during {self.num_disturbed} of {self.num_timed} timings, so the speeds and the settings "
            "chosen from them are in doubt"
        )


def noise_of(trials: Sequence[Trial]) -> Noise | None:
    """The disturbances of the trials; None if there were none."""
    timed = [trial for trial in trials if trial.request.kind in TIMED and trial.fits]
    disturbed = [trial for trial in timed if trial.is_disturbed]
    if not disturbed:
        return None
    return Noise(len(disturbed), len(timed), _most(disturbed, "other_cpus"), disturbance_of(disturbed))


def disturbance_of(trials: Sequence[Trial]) -> str:
    """The largest disturbances during these trials, in words."""
    names: tuple[Disturbance, ...] = ("other_cpus", "stolen_share", "throttled_share", "hot_share", "neighbour_share")
    others, stolen, throttled, hot, joint = (_most(trials, name) for name in names)
    told = [
        f"other processes kept up to {others:.1f} CPUs busy" if others >= FELT_CPUS else "",
        f"a hypervisor took up to {stolen:.0%} of the CPU time" if stolen >= STOLEN_SHARE else "",
        f"the cgroup's CPU quota was used up in {throttled:.0%} of its periods" if throttled >= THROTTLED_SHARE else "",
        f"heat cut the GPU's clocks in up to {hot:.0%} of its working time" if hot >= HOT_SHARE else "",
        f"another process was on the GPU for up to {joint:.0%} of the time" if joint >= NEIGHBOUR_SHARE else "",
    ]
    return ", ".join(filter(None, told))


def _most(trials: Sequence[Trial], name: Disturbance) -> float:
    return max(trial.measured.get(name, 0.0) for trial in trials)
