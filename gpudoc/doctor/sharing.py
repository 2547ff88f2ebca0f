"""Check whether other processes compute on the GPUs of a long run before it starts, and say so in one wording."""

from __future__ import annotations

import os
from collections.abc import Iterable

import psutil

from gpudoc.doctor.causes.holders import describe_holder, end_of, holders_of
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.identify import gpu_at
from gpudoc.facts.model import Absent, Gpu, GpuProcess, Machine
from gpudoc.patterns import Pattern

MOST_NAMED = 3
# processes with a context for a screen or for their clients; the kernel cuts names to 15 letters
_NO_WORK = Pattern(
    r"^(Xorg|X|Xwayland|gnome-shell|gnome-remote-de|kwin_\w*|plasmashell|mutter|sway|weston|Hyprland|cinnamon|"
    r"xfwm4|picom|gdm\S*|sddm\S*|nvidia-cuda-mps\S*|nvidia-persiste\S*|dcgm\S*|nv-hostengine)$"
)
# variables that show an engine which starts several processes on a node
_ENGINES = ("RANK", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def sharers(gpu: Gpu) -> tuple[GpuProcess, ...]:
    """Other processes that compute on the GPU: they have a context and, if NVML knows it, use the SMs.

    An idle notebook that holds memory does not count; neither do a screen's processes and this run's own.
    """
    if gpu.mig_enabled is True:
        # NVML lists the processes of all instances, which share no SM
        return ()
    return tuple(process for process in holders_of(gpu) if _computes(process) and not _is_of_this_run(process.pid))


def name_sharers(processes: Iterable[GpuProcess]) -> str:
    """The first few processes by user, program, process id and memory, and how many more there are."""
    named = [describe_holder(process) for process in processes]
    more = f"; {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return "; ".join(named[:MOST_NAMED]) + more


def require_alone(machine: Machine, ordinals: Iterable[int], *, shared: bool) -> str:
    """Words about other processes on these GPUs (CUDA's numbers), '' if none; GpudocError (exit 1) unless `shared`.

    Figures measured while others compute say nothing about the GPU, and a batch that fits now may not fit later.
    """
    busy = [
        (ordinal, found)
        for ordinal in ordinals
        if (gpu := gpu_at(ordinal, machine)) is not None and (found := sharers(gpu))
    ]
    if not busy:
        return ""
    said = "; ".join(f"other processes compute on cuda:{ordinal}: {name_sharers(found)}" for ordinal, found in busy)
    if shared:
        return said
    own = next((end for _, found in busy for process in found if (end := end_of(process))), "")
    ways = [f"stop your own processes: {own}"] if own else []
    free = _free(machine, {ordinal for ordinal, _ in busy})
    ways += [f"--device cuda:{free}, which is idle"] if free is not None else []
    raise GpudocError(
        said,
        hint="; or ".join((*ways, "--shared to continue; the figures then include their load")),
        exit_code=ExitCode.BAD_ANSWER,
    )


def _computes(process: GpuProcess) -> bool:
    name = "" if isinstance(process.name, Absent) else process.name
    return not _NO_WORK.search(name) and (isinstance(process.sm_percent, Absent) or process.sm_percent > 0)


def _is_of_this_run(pid: int) -> bool:
    """Whether the process is this one, its ancestor or descendant, or was started by the same launcher."""
    above = _above(pid)
    of_launcher = any(name in os.environ for name in _ENGINES) and os.getppid() > 1 and os.getppid() in above
    return os.getpid() in (pid, *above) or pid in _above(os.getpid()) or of_launcher


def _above(pid: int) -> list[int]:
    try:
        return [parent.pid for parent in psutil.Process(pid).parents()]
    except psutil.Error:
        return []


def _free(machine: Machine, busy: set[int]) -> int | None:
    """The first of CUDA's GPUs on which no other process computes; None if there is none."""
    candidates = range(0 if isinstance(machine.gpus, Absent) else len(machine.gpus))
    free = (n for n in candidates if n not in busy and (gpu := gpu_at(n, machine)) is not None and not sharers(gpu))
    return next(free, None)
