"""How one point is sampled: warm-up, raw samples until the median is known well enough or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpudoc.bench.model import Better, Parameter, RawReading
from gpudoc.process.cpu_load import CpuLoad, LoadMeter
from gpudoc.stats import median, median_interval

if TYPE_CHECKING:
    from gpudoc.bench.gpu import GpuUnderTest

MIN_SAMPLES = 7
MAX_SAMPLES = 400
# a point that is slower than planned ends after this many times its seconds, with fewer samples from this process
OVERTIME = 2.0
# seconds between two readings of the others' load: each reads all processes, which takes some milliseconds
LOOK_S = 0.2
# a point stops early if half the width of the median's 95 % interval is at most this share of the median
TIGHT = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan:
    """The parent's decisions for the measuring process; plain numbers, so that they can be sent as JSON.

    `soak_s`: seconds that the GPU multiplies after all other cases, 0 if nobody asked for a soak.
    `is_exclusive`: a GPU allows only one process at a time (`nvidia-smi --query-gpu=compute_mode`).
    """

    device: str
    only: tuple[str, ...] = ()
    quick: bool = False
    rounds: int = 3
    budget_s: float = 60.0
    soak_s: float = 0.0
    data: str = ""
    threads: int = 1
    cpu_flags: tuple[str, ...] = ()
    last_level_cache_bytes: int = 0
    memory_bytes: int = 2**31
    bind_cpus: tuple[int, ...] = ()
    num_gpus: int = 0
    is_exclusive: bool = False
    parent_pid: int = 0


@dataclass(slots=True)
class OtherLoad:
    """The load of other processes on the CPUs, from readings at least LOOK_S apart."""

    _meter: LoadMeter = field(default_factory=LoadMeter)
    _looked_s: float = field(default_factory=time.monotonic)
    _seen: CpuLoad | None = None

    def context(self) -> dict[str, float]:
        """'stolen_share' of all CPU time and 'other_cpus_max' busy, over the time up to now, or up to the last reading
        if that is less than LOOK_S ago. Empty before the first reading.
        """
        now = time.monotonic()
        if self._seen is None or now - self._looked_s >= LOOK_S:
            seen = self._meter.read()
            if seen is not None:
                self._meter, self._looked_s, self._seen = LoadMeter(), now, seen
        if self._seen is None:
            return {}
        stolen = self._seen.stolen_share
        return {"other_cpus_max": self._seen.other_cpus} | ({} if stolen is None else {"stolen_share": stolen})


@dataclass(slots=True)
class Bench:
    """The tools of a running case: the plan, its seconds, and the meters around each point.

    `is_alive` tells the parent process that a wait is not a hang.
    """

    plan: SamplingPlan
    round: int = 0
    budget_s: float = 1.0
    clock_ghz: Callable[[], float | None] = lambda: None
    gpu: GpuUnderTest | None = None
    left_out: list[tuple[str, str]] = field(default_factory=list)
    is_alive: Callable[[], None] = lambda: None
    beside: OtherLoad = field(default_factory=OtherLoad)

    @property
    def device(self) -> GpuUnderTest:
        """The GPU of this run; only GPU cases may use it."""
        assert self.gpu is not None, "a GPU case ran without a GPU"
        return self.gpu

    def leave_out(self, what: str, because: str) -> None:
        """Note a point that is not measured, so that the record mentions it."""
        self.left_out.append((what, because))

    @property
    def is_spread(self) -> bool:
        """Whether many short processes share the samples of each row, instead of a few long ones."""
        return self.plan.quick and self.plan.rounds > 1

    def point_s(self, num_points: int) -> float:
        """Seconds for each of `num_points` points of the running case."""
        return self.budget_s / max(1, num_points)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The identity of a row, before it is measured."""

    name: str
    unit: str
    parameters: Mapping[str, Parameter]
    device: str = "cpu"
    better: Better = "higher"


def fewest_samples(rounds: int) -> int:
    """The fewest samples of a row from each of `rounds` processes, so that together they have MIN_SAMPLES."""
    return max(2, -(-MIN_SAMPLES // rounds))


def collect_samples(
    once: Callable[[], float], budget_s: float, warm_up: int = 2, *, fewest: int = MIN_SAMPLES, overtime: float = 1.0
) -> tuple[float, ...]:
    """Values of `once()` after `warm_up` dropped ones: MIN_SAMPLES, and more until tight or `budget_s` is over; only
    `fewest` if that takes more than `overtime` times `budget_s`.
    """
    started = time.perf_counter()
    for _ in range(warm_up):
        once()
    samples: list[float] = []
    while len(samples) < MAX_SAMPLES:
        samples.append(once())
        spent = time.perf_counter() - started
        late = len(samples) >= fewest and spent > overtime * budget_s
        if late or (len(samples) >= MIN_SAMPLES and spent > budget_s):
            break
        if len(samples) >= 3 * MIN_SAMPLES and is_tight(samples):
            break
    return tuple(samples)


def is_tight(samples: list[float]) -> bool:
    """Whether the median of `samples` is known to within TIGHT."""
    low, high = median_interval(samples)
    middle = median(samples)
    return middle > 0 and (high - low) / 2 <= TIGHT * middle


def sample_point(bench: Bench, row: Row, once: Callable[[], float], budget_s: float, warm_up: int = 2) -> RawReading:
    """One row's reading in this round: samples of `once`, plus the host's load and the CPU's clock."""
    began = time.monotonic()
    effort = (1, 1.0) if bench.is_spread else (warm_up, OVERTIME)
    fewest = fewest_samples(bench.plan.rounds)
    samples = collect_samples(once, budget_s, effort[0], fewest=fewest, overtime=effort[1])
    ended = time.monotonic()
    context = bench.beside.context()
    clock = bench.clock_ghz()
    if clock is not None:
        context["cpu_clock_ghz"] = context["cpu_clock_ghz_max"] = clock
    return RawReading(
        name=row.name,
        device=row.device,
        parameters=dict(row.parameters),
        unit=row.unit,
        samples=samples,
        better=row.better,
        context=context,
        round=bench.round,
        began_s=began,
        ended_s=ended,
    )


def timed_rate(action: Callable[[], object], work: float, at_least_s: float = 0.002) -> Callable[[], float]:
    """A function for the work per second of `action`, which one sample repeats until it lasts `at_least_s`."""
    started = time.perf_counter()
    action()
    repeats = max(1, round(at_least_s / max(1e-9, time.perf_counter() - started)))

    def once() -> float:
        start = time.perf_counter_ns()
        for _ in range(repeats):
            action()
        return work * repeats / ((time.perf_counter_ns() - start) / 1e9)

    return once
