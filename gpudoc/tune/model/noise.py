"""How much others on the machine disturbed a search; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudoc.tune.trial.messages import TIMED, Trial


@dataclass(frozen=True, slots=True)
class Noise:
    """Of `num_timed` trials that were to tell a speed, those that others disturbed, and how many CPUs these took."""

    num_disturbed: int
    num_timed: int
    most_cpus: float

    def __str__(self) -> str:
        return (
            f"others kept up to {self.most_cpus:.1f} CPUs busy during {self.num_disturbed} of {self.num_timed} timings,"
            " so that the speeds and what was chosen by them are in doubt"
        )


def noise_of(trials: Sequence[Trial]) -> Noise | None:
    """What disturbed the trials; None when nothing did."""
    timed = [trial for trial in trials if trial.request.kind in TIMED and trial.fits]
    disturbed = [trial.measured.get("other_cpus", 0.0) for trial in timed if trial.is_disturbed]
    return Noise(len(disturbed), len(timed), max(disturbed)) if disturbed else None
