"""A running job watched from outside, frozen: stacks, processes, limits and device counters over some seconds."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path

from gpudoc.facts.model import NOT_READ, Fact
from gpudoc.frozen import dataclass
from gpudoc.process.openmp import OpenMp

# with the separator: a neighbouring folder whose name begins the same way is the user's
OWN_FOLDER = str(Path(__file__).resolve().parents[1]) + os.sep
# Debian's Python, which NVIDIA's containers have, installs into dist-packages
_PACKAGES = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Frame:
    """One Python frame: function, full path of its file, and the line that runs in it (`py-spy dump`)."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStacks:
    """The stacks of one thread in the order of time, outermost frame first, as indices into `Stacks.frames`."""

    pid: int
    tid: int
    name: str
    samples: tuple[tuple[int, ...], ...]

    @property
    def is_main(self) -> bool:
        """Whether this is the main thread of its process."""
        return self.pid == self.tid


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    """What the sampler saw of every Python thread, at the rate that it reached (`py-spy record -s -t -i`)."""

    rate_hz: float
    start_s: float
    frames: tuple[Frame, ...]
    threads: tuple[ThreadStacks, ...]
    lines: Mapping[tuple[str, int], str] = field(default_factory=dict)
    accumulations: Mapping[tuple[str, int], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """One main thread at one moment: its stack, whether it ran and held the interpreter lock (`py-spy dump`)."""

    time_s: float
    pid: int
    frames: tuple[Frame, ...]
    active: bool
    holds_gil: bool


@dataclass(frozen=True, slots=True)
class Pages:
    """Memory that a process allocated or inherited by fork, at one moment; `own_bytes` counts 1/n of a page that n
    processes share, so it grows when a page is copied, but `mapped_bytes` does not
    (`grep -E 'Anonymous|Pss_Anon' /proc/PID/smaps_rollup`).
    """

    time_s: float
    mapped_bytes: int
    own_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTrack:
    """One process of the job over the watch; counters are what was added while it was seen (`/proc/PID`).

    `age_s` is its age when it was first seen. `memory` and `cpu` are series of (seconds, bytes) and (seconds, CPU
    seconds). `moved` (bytes read and written) and `wakes` (how often the main thread was woken) are series too, both
    empty if /proc does not show them. `blocked` counts the looks at which the main thread waited, per system call and
    the file system behind it. `pages` shows copies of shared memory (`cat /proc/PID/smaps_rollup`).
    """

    pid: int
    parent: int
    name: str
    command: str
    first_s: float
    last_s: float
    age_s: float
    num_threads: int
    cpu_s: float
    main_cpu_s: float
    queued_s: Fact[float] = NOT_READ
    main_queued_s: Fact[float] = NOT_READ
    read_bytes: Fact[int] = NOT_READ
    write_bytes: Fact[int] = NOT_READ
    write_chars: Fact[int] = NOT_READ
    major_faults: int = 0
    switches_involuntary: Fact[int] = NOT_READ
    looks: int = 0
    running: int = 0
    in_disk_wait: int = 0
    blocked: Mapping[str, int] = field(default_factory=dict)
    memory: tuple[tuple[float, int], ...] = ()
    cpu: tuple[tuple[float, float], ...] = ()
    moved: tuple[tuple[float, int], ...] = ()
    wakes: tuple[tuple[float, int], ...] = ()
    pages: tuple[Pages, ...] = ()
    born_during_watch: bool = False
    died_during_watch: bool = False
    rank: Fact[int] = NOT_READ
    thread_settings: Mapping[str, str] = field(default_factory=dict)
    openmp: OpenMp = field(default_factory=lambda: OpenMp(None))

    @property
    def seconds(self) -> float:
        """How long the process was seen."""
        return max(self.last_s - self.first_s, 1e-9)


@dataclass(frozen=True, slots=True)
class Handoff:
    """Seconds for passing one batch of two tensors between processes, on this machine under its present load.

    `free_s` is for a worker that releases the interpreter's lock, `held_s` for one that holds it while it works.
    `queued` is the share of the time in which one of the two processes waited for a CPU.
    """

    free_s: float
    held_s: float
    queued: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the job may use: CPUs after affinity and quota, memory, shared memory; throttling while watched."""

    cpus_online: int
    cpus_affinity: int
    cpu_quota_cores: Fact[float] = NOT_READ
    throttled_s: Fact[float] = NOT_READ
    throttled_periods: Fact[int] = NOT_READ
    periods: Fact[int] = NOT_READ
    memory_available_bytes: Fact[int] = NOT_READ
    memory_limit_bytes: Fact[int] = NOT_READ
    memory_used_bytes: Fact[int] = NOT_READ
    shm_total_bytes: Fact[int] = NOT_READ
    shm_free_bytes: Fact[int] = NOT_READ
    machine_busy_cores: Fact[float] = NOT_READ

    @property
    def cpus_usable(self) -> float:
        """CPUs after affinity and cgroup quota."""
        quota = self.cpu_quota_cores
        return min(float(self.cpus_affinity), quota) if isinstance(quota, float) else float(self.cpus_affinity)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMoment:
    """One GPU at one moment (`nvidia-smi dmon`, `nvidia-smi -q`); units are the suffixes.

    The active percentages are averages over the previous second (`nvidia-smi dmon --gpm-metrics 2,5,10,12`): the busy
    SMs, the time in which tensor cores or fp32 units worked, and the used share of the memory bandwidth.
    """

    time_s: float
    utilization_percent: Fact[int] = NOT_READ
    memory_used_bytes: Fact[int] = NOT_READ
    sm_clock_mhz: Fact[int] = NOT_READ
    power_w: Fact[float] = NOT_READ
    temperature_c: Fact[int] = NOT_READ
    throttle_reasons: Fact[tuple[str, ...]] = NOT_READ
    pcie_generation: Fact[int] = NOT_READ
    pcie_width: Fact[int] = NOT_READ
    pcie_rx_bytes_per_s: Fact[float] = NOT_READ
    sm_active_percent: Fact[float] = NOT_READ
    tensor_active_percent: Fact[float] = NOT_READ
    dram_active_percent: Fact[float] = NOT_READ
    fp32_active_percent: Fact[float] = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUser:
    """A process on a GPU: memory held, and its share of the SMs as NVML saw it (`nvidia-smi pmon`)."""

    pid: int
    memory_bytes: Fact[int] = NOT_READ
    sm_percent: Fact[float] = NOT_READ
    name: Fact[str] = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTrack:
    """One GPU over the watch: what it is, who uses it, and its moments at about 10 Hz.

    `counters_absent` says why the moments have no active percentages, '' if they have them.
    """

    index: int
    name: Fact[str] = NOT_READ
    memory_total_bytes: Fact[int] = NOT_READ
    sm_clock_max_mhz: Fact[int] = NOT_READ
    power_limit_w: Fact[float] = NOT_READ
    power_limit_default_w: Fact[float] = NOT_READ
    pcie_generation_max: Fact[int] = NOT_READ
    pcie_width_max: Fact[int] = NOT_READ
    counters_absent: str = ""
    users: Fact[tuple[GpuUser, ...]] = NOT_READ
    moments: tuple[GpuMoment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Watch:
    """What was seen of one job while it ran; compared by identity, because it holds thousands of samples.

    `close_up` is a second or two of one training process without loader workers, sampled fast enough to count steps.
    `handoff` is the cost of passing a batch between two processes here, measured for the same jobs. `still_before_s` is
    how long the job had stood still when the watch began, 0 if unknown. `log` is the end of a launched command's output
    up to then.
    """

    pid: int
    seconds: float
    stacks: Fact[Stacks] = NOT_READ
    close_up: Fact[Stacks] = NOT_READ
    handoff: Fact[Handoff] = NOT_READ
    glances: Fact[tuple[Glance, ...]] = NOT_READ
    processes: tuple[ProcessTrack, ...] = ()
    limits: Fact[Limits] = NOT_READ
    gpus: Fact[tuple[GpuTrack, ...]] = NOT_READ
    interrupted: bool = False
    ended: bool = False
    still_before_s: float = 0.0
    command: str = ""
    directory: Fact[str] = NOT_READ
    log: str = ""


def last_own(frames: Iterable[tuple[str, int]]) -> str | None:
    """'file:line' of the user's last frame, with the outermost frame given first; None if no frame is the user's."""
    library = sysconfig.get_paths()["stdlib"]
    theirs = [
        f"{name}:{line}"
        for name, line in frames
        if not name.startswith((OWN_FOLDER, library, "<")) and not any(part in name for part in _PACKAGES)
    ]
    return theirs[-1] if theirs else None
