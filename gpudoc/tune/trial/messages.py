"""Trials and their results: requests, points and trials, each readable from the journal."""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, NewType

from pydantic import ConfigDict, Field

from gpudoc.profile.model import Allocator, Levers, Loader, LoaderTrial, ProfilePart, WaitPolicy

if TYPE_CHECKING:
    from gpudoc.process.cpu_load import CpuLoad

Kind = Literal[
    "look", "plan", "default", "variant", "alike", "calibrate", "fit", "steady", "speed", "loader", "joint", "scaling"
]
How = Literal["fork", "exec", "launch"]


# load from other processes while a trial was timed: the CPUs they kept busy, and shares of all CPUs or of the time
Disturbance = Literal[
    "other_cpus", "other_share", "busy_share", "stolen_share", "throttled_share", "hot_share", "neighbour_share"
]
# seconds of a step and shares of it; for a launch also its steps, ranks, batch, CPU seconds per step and bytes
OfSteps = Literal["mean_step_s", "wait_share", "loading_share", "samples_per_s", "runs"]
OfLaunch = Literal["steps", "start_s", "ranks", "loader_batch", "cpu_s", "private_bytes", "shm_bytes"]
# 1 if memory settled, if small steps were equal, if steps drew random numbers; then how memory grew
OfProbe = Literal["settled", "alike", "draws", "steady_steps", "growth_bytes_per_step"]
OfPlan = Literal["batch", "peak_bytes", "bytes_per_sample"]
Measure = Literal[Disturbance, OfSteps, OfLaunch, OfProbe, OfPlan]
# a change or a policy in a plan's answer, prefixed with `RUNG` or `POLICY`
PlanAnswer = NewType("PlanAnswer", str)
# numbers of a trial in addition to its points, by name
Measures = dict[Measure | PlanAnswer, float]


class End(str, Enum):
    """How a trial ended; everything but FITS names the first thing that stopped it."""

    FITS = "fits"
    OOM_DEVICE = "oom_device"
    OOM_WORKSPACE = "oom_workspace"
    OOM_HOST = "oom_host"
    OOM_CGROUP = "oom_cgroup"
    OOM_SHM = "oom_shm"
    INDEX_LIMIT = "index_limit"
    GRID_LIMIT = "grid_limit"
    ALLOCATOR_RETRY = "allocator_retry"
    LEAK = "leak"
    HANG = "hang"
    WORKER_DIED = "worker_died"
    USER_ERROR = "user_error"
    TIME_UP = "time_up"
    SIGNAL = "signal"

    @property
    def told(self) -> str:
        """The end in plain words: 'memory ran out', 'your code failed'."""
        return _IN_WORDS[self]

    @property
    def is_memory(self) -> bool:
        """Whether a smaller batch may help because memory ran out."""
        return self in _MEMORY_ENDS

    @property
    def is_too_large(self) -> bool:
        """Whether the batch was too large, for memory or for the kernels' indices and grids."""
        return self.is_memory or self in (End.INDEX_LIMIT, End.GRID_LIMIT)


_IN_WORDS = {
    End.FITS: "fits",
    End.OOM_DEVICE: "the GPU's memory ran out",
    End.OOM_WORKSPACE: "a library's workspace did not fit",
    End.OOM_HOST: "memory ran out",
    End.OOM_CGROUP: "the kernel killed it because the cgroup ran out of memory",
    End.OOM_SHM: "/dev/shm is used up",
    End.INDEX_LIMIT: "the batch is too large for a kernel's index",
    End.GRID_LIMIT: "the batch is too large for a kernel's grid",
    End.ALLOCATOR_RETRY: "the allocator had to empty its cache",
    End.LEAK: "memory grows with every step",
    End.HANG: "it hung",
    End.WORKER_DIED: "a loader worker died",
    End.USER_ERROR: "your code failed",
    End.TIME_UP: "its time was up",
    End.SIGNAL: "a signal ended it",
}
_MEMORY_ENDS = frozenset(
    {End.OOM_DEVICE, End.OOM_WORKSPACE, End.OOM_HOST, End.OOM_CGROUP, End.OOM_SHM, End.ALLOCATOR_RETRY}
)


class TrialPart(ProfilePart):
    """A frozen record of a trial; unknown keys are mistakes, and a number may be infinite."""

    model_config = ConfigDict(ser_json_inf_nan="constants")


# prefixes of the name of a policy, or of a rung of the ladder, in a plan's answer
POLICY, RUNG = "policy ", "rung "
# seconds of steps before the timed ones: a card rests between two trials, and from rest it takes some tenths of a
# second to reach its clocks
WAKE_S = 1.0
# measure of a trial: how many runs it had, if more than one
RUNS: Final = "runs"


class Variant(Levers):
    """The settings that may change apart from the batch: the levers that a profile keeps."""

    @property
    def environment(self) -> tuple[Allocator, WaitPolicy]:
        """The levers that act only at the start of a process: each combination has a separate fork server."""
        return self.allocator, self.wait_policy


class PlanQuestion(TrialPart):
    """A question to a plan, for a memory limit in bytes.

    `largest`: the line of memory near the largest batch that fits. `policy`: the cheapest policy with which the
    request's batch fits; `most`: the cheapest with which the most samples fit. `ladder`: changes that make batch 1 fit.
    `capability` is the GPU's, None on a CPU; `seen` is the batch and the peak bytes of steps that ran already.
    """

    asks: Literal["largest", "policy", "most", "ladder"] = "largest"
    limit_bytes: int = Field(ge=0)
    capability: tuple[int, int] | None = None
    seen: tuple[int, int] | None = None


class TrialRequest(TrialPart):
    """One trial to run in fresh processes: its batches, its settings and its time. Equal requests are one trial.

    Batches (over all ranks) below `accumulate_below` are stepped in several micro batches, as training will. `enough`
    is how many steady steps suffice if memory does not change, `seed` is added to the workload's, `threads` are
    those of one rank, `unlimited` removes the memory limit, and `question` is for a plan.
    """

    kind: Kind
    batches: tuple[int, ...]
    variant: Variant = Variant()
    feed: Loader | None = None
    ranks: int = Field(default=1, ge=1)
    accumulation: int = Field(default=1, ge=1)
    accumulate_below: int = Field(default=1, ge=1)
    steps: int = Field(default=2, ge=1)
    seconds_per_batch: float = Field(default=0.0, ge=0)
    repeat: int = Field(default=0, ge=0)
    stay: bool = False
    enough: int = Field(default=0, ge=0)
    seed: int = Field(default=0, ge=0)
    threads: int | None = Field(default=None, ge=1)
    unlimited: bool = False
    question: PlanQuestion | None = None

    def key(self) -> str:
        """The request as one line of JSON that is equal for equal requests."""
        return json.dumps(self.model_dump(mode="json", exclude_defaults=True), sort_keys=True)

    def num_micros(self, batch: int) -> int:
        """Micro batches per step at `batch`: two stand for any number, since the second already meets gradients."""
        return max(self.accumulation, 2 if batch * self.ranks < self.accumulate_below else 1)


class Point(TrialPart):
    """The measurements of one batch size: bytes at rest and at the peak, seconds of each step after the first."""

    batch: int = Field(ge=1)
    peak_bytes: int | None = None
    rest_bytes: int | None = None
    step_s: tuple[float, ...] = ()
    retries: int = 0

    @property
    def seconds(self) -> float | None:
        """The median step, in seconds; None if no step was timed."""
        if not self.step_s:
            return None
        ordered = sorted(self.step_s)
        return ordered[len(ordered) // 2]

    @property
    def samples_per_s(self) -> float | None:
        """Samples per second of this process at the median step; None if no step was timed."""
        seconds = self.seconds
        return None if not seconds else self.batch / seconds


# kinds of trials that measure a speed
TIMED: frozenset[Kind] = frozenset({"look", "default", "variant", "speed", "loader", "joint", "scaling"})
# other processes that keep this many CPUs busy slow a trial once all CPUs are in use; the amount is unknown
FELT_CPUS, _FELT_SHARE = 0.25, 0.8
# this share of the CPUs slows a trial even if the rest is idle: all share memory, caches and clocks
_FELT_PART = 1 / 8
STOLEN_SHARE, THROTTLED_SHARE, HOT_SHARE = 0.02, 0.05, 0.05
# a process that is still there when the next trial begins appears in some of the GPU readings
NEIGHBOUR_SHARE = 0.5


class Trial(TrialPart):
    """One finished trial: how its processes were started and ended, the measurements, its duration in seconds.

    `refused` holds settings that a user's own script did not take, and why; `notes` say what the settings it took may
    change. `measured` also holds the load while it was timed, from `process.cpu_load`: other_cpus, other_share (of all
    CPUs), busy_share, stolen_share and throttled_share; and, as shares of the GPU's working time, hot_share (heat cut
    its clocks) and neighbour_share (another process computed there, too).
    `losses` are those of a variant's first steps. A search for the loader that ran within one trial puts its choice
    in `chosen`, and each setting in `loaders`.
    """

    request: TrialRequest
    end: End
    detail: str = ""
    stage: str = ""
    failed_batch: int | None = None
    points: tuple[Point, ...] = ()
    seconds: float = 0.0
    traceback: str = ""
    hint: str = ""
    exit_code: int = 1
    measured: Measures = Field(default_factory=dict)
    legs: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    losses: tuple[float, ...] = ()
    how: How = "fork"
    refused: dict[str, str] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    chosen: Loader | None = None
    loaders: tuple[LoaderTrial, ...] = ()

    @property
    def samples_per_s(self) -> float | None:
        """Samples per second of all ranks at the last point; None if unknown."""
        if self.how == "launch":
            return self.measured.get("samples_per_s")
        rate = self.points[-1].samples_per_s if self.points else None
        return None if rate is None else rate * self.request.ranks

    @property
    def steps_per_s(self) -> float | None:
        """Steps per second of a launch, counted in the script; None for other trials."""
        step_s = self.measured.get("mean_step_s")
        return 1 / step_s if step_s else None

    @property
    def fits(self) -> bool:
        """Whether all requested steps ran without a failure."""
        return self.end is End.FITS

    @property
    def is_disturbed(self) -> bool:
        """Whether its speed is in doubt, because other processes used the CPUs, the resources that all CPUs share or
        the GPU, or because of heat."""
        told = self.measured
        others = told.get("other_cpus", 0.0) >= FELT_CPUS
        crowded = told.get("busy_share", 0.0) >= _FELT_SHARE or told.get("other_share", 0.0) >= _FELT_PART
        stolen = told.get("stolen_share", 0.0) >= STOLEN_SHARE
        throttled = told.get("throttled_share", 0.0) >= THROTTLED_SHARE
        hot = told.get("hot_share", 0.0) >= HOT_SHARE
        shared = told.get("neighbour_share", 0.0) >= NEIGHBOUR_SHARE
        return self.request.kind in TIMED and ((others and crowded) or stolen or throttled or hot or shared)

    @property
    def disturbance(self) -> tuple[float, ...]:
        """How much the trial was disturbed, to compare: of several timings, believe the least disturbed one."""
        names: tuple[Disturbance, ...] = (
            "hot_share",
            "neighbour_share",
            "other_cpus",
            "stolen_share",
            "throttled_share",
        )
        return (float(self.is_disturbed), *(self.measured.get(name, 0.0) for name in names))

    def beside(self, found: CpuLoad | None, *, on_gpu: bool = False) -> Trial:
        """This trial with the CPU load of other processes; steps on a GPU do not share memory with them."""
        if found is None:
            return self
        told: dict[Disturbance, float | None] = {
            "other_cpus": found.other_cpus,
            "busy_share": found.share,
            "other_share": None if on_gpu else found.other_share,
            "stolen_share": found.stolen_share,
            "throttled_share": found.throttled_share,
        }
        known = {name: round(value, 4) for name, value in told.items() if value is not None}
        return self.model_copy(update={"measured": {**self.measured, **known}})

    def point(self, batch: int) -> Point | None:
        """The last point measured at `batch`, or None."""
        return next((point for point in reversed(self.points) if point.batch == batch), None)
