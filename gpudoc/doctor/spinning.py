"""OpenMP threads that spin on CPUs that other processes need; one judgement for doctor, bench, tune and train."""

from __future__ import annotations

import math
import os
import time
from dataclasses import field

from gpudoc.doctor.model import Finding, Observation, Remedy
from gpudoc.frozen import dataclass
from gpudoc.process.openmp import GNU_ALONE, SPINS, SPINS_IN_A_CROWD, OpenMp, own_openmp

# other processes with less load than this do not matter
_FELT_CPUS = 0.5
# how many threads of a team lack their own CPU, on average
_LACKING_CPUS = 0.5
# ten ticks of the kernel's clock on each CPU
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """One process's team of threads, the CPUs that it may use, and how many of these other processes kept busy."""

    threads: int
    cpus: float
    other_cpus: float
    openmp: OpenMp = field(default_factory=lambda: OpenMp(None))

    @property
    def left(self) -> float:
        """CPUs that other processes leave free."""
        return max(0.0, self.cpus - self.other_cpus)


def crowd_here(other_cpus: float, threads: int | None = None) -> Crowd:
    """The threads of this process or its children next to others' load; `threads` replaces the usual number."""
    from gpudoc.facts.host import cpus_usable
    from gpudoc.process.cpu_load import cpus_allowed

    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    known = int(asked) if asked.isdecimal() and int(asked) else cpus_allowed()
    return Crowd(threads=threads or known, cpus=cpus_usable(), other_cpus=other_cpus, openmp=own_openmp())


def may_sleep(other_cpus: float) -> bool:
    """Whether threads of processes started here would spin next to others, and no setting says how they wait."""
    crowd = crowd_here(other_cpus)
    return find_spinning(crowd) is not None and not crowd.openmp.is_told


def bound_spinning() -> None:
    """Let waiting threads of this process and its children sleep soon, or at once if other processes compute.

    Existing settings stay. Call it before torch is imported, since torch loads the runtime, and not if a command of the
    user's is started.
    """
    found = own_openmp()
    if found.runtime == "libgomp" and not found.settings:
        os.environ[GNU_ALONE] = SPINS_IN_A_CROWD if may_sleep(_others_now()) else SPINS


def _others_now() -> float:
    """How many of this process's CPUs others keep busy during the next tenth of a second."""
    from gpudoc.process.cpu_load import LoadMeter

    meter = LoadMeter()
    time.sleep(_LOOK_S)
    found = meter.read()
    return found.other_cpus if found is not None else 0.0


def find_spinning(crowd: Crowd) -> Finding | None:
    """The finding if a team has more threads than the CPUs that others leave, and its waiting threads do not sleep."""
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
