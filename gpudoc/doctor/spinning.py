"""OpenMP threads that spin for CPUs on which others compute; one judgement for doctor, bench, tune and train."""

from __future__ import annotations

import math
import os
import time
from dataclasses import field

from gpudoc.doctor.model import Finding, Observation, Remedy
from gpudoc.frozen import dataclass
from gpudoc.process.openmp import GNU_ALONE, SPINS, SPINS_IN_A_CROWD, OpenMp, own_openmp

# below this others are a moment's work
_FELT_CPUS = 0.5
# threads of a team that have no CPU of their own, on average
_LACKING_CPUS = 0.5
# of ten ticks of the kernel's clock on each CPU
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Threads of one process in one team, the CPUs that it may use, and how many of them others kept busy."""

    threads: int
    cpus: float
    other_cpus: float
    openmp: OpenMp = field(default_factory=lambda: OpenMp(None))

    @property
    def left(self) -> float:
        """CPUs that others leave."""
        return max(0.0, self.cpus - self.other_cpus)


def crowd_here(other_cpus: float, threads: int | None = None) -> Crowd:
    """What computes in this process or its children while others compute; `threads` where torch was not asked."""
    from gpudoc.facts.host import cpus_usable
    from gpudoc.process.cpu_load import cpus_allowed

    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    known = int(asked) if asked.isdecimal() and int(asked) else cpus_allowed()
    return Crowd(threads=threads or known, cpus=cpus_usable(), other_cpus=other_cpus, openmp=own_openmp())


def may_sleep(other_cpus: float) -> bool:
    """Whether threads of what is started here spin next to others, and nobody has said how they are to wait."""
    crowd = crowd_here(other_cpus)
    return find_spinning(crowd) is not None and not crowd.openmp.is_told


def bound_spinning() -> None:
    """Let waiting threads of what this process and its children compute sleep soon, at once where others compute.

    What somebody has set stays. To be called before torch is imported, which loads the runtime, and not where a command
    of the user's is started.
    """
    found = own_openmp()
    if found.runtime == "libgomp" and not found.settings:
        os.environ[GNU_ALONE] = SPINS_IN_A_CROWD if may_sleep(_others_now()) else SPINS


def _others_now() -> float:
    """CPUs of those that this process may use which others keep busy during the next tenth of a second."""
    from gpudoc.process.cpu_load import LoadMeter

    meter = LoadMeter()
    time.sleep(_LOOK_S)
    found = meter.read()
    return found.other_cpus if found is not None else 0.0


def find_spinning(crowd: Crowd) -> Finding | None:
    """The finding where more threads compute together than others leave CPUs, and those that wait do not sleep."""
    if crowd.threads < 2 or crowd.other_cpus < _FELT_CPUS or crowd.openmp.is_passive or crowd.openmp.is_bounded:
        return None
    if crowd.threads < crowd.left + _LACKING_CPUS:
        return None
    fewer = max(1, math.floor(crowd.left + _LACKING_CPUS))
    settings = ", ".join(f"{name}={value}" for name, value in crowd.openmp.settings.items()) or "none set"
    return Finding(
        id="openmp_spinning",
        severity="warning",
        confidence=0.7,
        title=f"{crowd.threads} OpenMP threads spin on {crowd.cpus:g} CPUs, "
        f"and other processes keep {crowd.other_cpus:.1f} of these busy",
        why=(
            "After every operation the threads wait for the slowest one, which has no CPU while other processes "
            "compute. The waiting threads keep their CPUs busy instead of releasing them."
        ),
        evidence=(
            Observation("cpus_left", f"{crowd.left:.1f} for {crowd.threads} threads", "/proc/stat"),
            Observation("openmp", f"{crowd.openmp.runtime or 'runtime not known'}; {settings}", "/proc"),
        ),
        fix=(
            Remedy(say="Let waiting threads sleep.", run=crowd.openmp.cure),
            Remedy(say="Use only as many threads as there are free CPUs.", run=f"export OMP_NUM_THREADS={fewer}"),
        ),
    )
