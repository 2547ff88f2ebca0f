"""How one point is sampled: warm-up, raw samples until the median is known well enough or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpudoc.bench.model import Better, Parameter, Reading
from gpudoc.process.beside import Meter
from gpudoc.stats import median, median_interval

if TYPE_CHECKING:
    from gpudoc.bench.gpu import Gpu

MIN_SAMPLES = 7
MAX_SAMPLES = 400
# a point that is slower than planned ends with fewer samples after this many times its seconds
OVERTIME = 2.0
# half the width of the median's 95 % interval, as a share of the median, at which a point stops early
TIGHT = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the parent decided for the process that measures; plain numbers, so that it travels as JSON."""

    device: str
    only: tuple[str, ...] = ()
    quick: bool = False
    rounds: int = 3
    budget_s: float = 60.0
    data: str = ""
    threads: int = 1
    cpu_flags: tuple[str, ...] = ()
    last_level_cache_bytes: int = 0
    memory_bytes: int = 2**31
    bind_cpus: tuple[int, ...] = ()
    num_gpus: int = 0
    parent_pid: int = 0


@dataclass(slots=True)
class Bench:
    """What a case may use while it runs: the plan, its seconds, and the meters around each point."""

    plan: Plan
    round: int = 0
    budget_s: float = 1.0
    clock_ghz: Callable[[], float | None] = lambda: None
    gpu: Gpu | None = None
    left_out: list[tuple[str, str]] = field(default_factory=list)

    @property
    def device(self) -> Gpu:
        """The GPU of this run; only cases that need one ask for it."""
        assert self.gpu is not None, "a GPU case ran without a GPU"
        return self.gpu

    def leave_out(self, what: str, because: str) -> None:
        """Note a point that is not measured, so that its absence is said."""
        self.left_out.append((what, because))

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


def collect_samples(once: Callable[[], float], budget_s: float, warm_up: int = 2) -> tuple[float, ...]:
    """Values of `once()` after `warm_up` dropped ones: at least MIN_SAMPLES, then until tight or `budget_s` is over."""
    started = time.perf_counter()
    for _ in range(warm_up):
        once()
    samples: list[float] = []
    while len(samples) < MAX_SAMPLES:
        samples.append(once())
        spent = time.perf_counter() - started
        if spent > budget_s and (len(samples) >= MIN_SAMPLES or spent > OVERTIME * budget_s):
            break
        if len(samples) >= 3 * MIN_SAMPLES and is_tight(samples):
            break
    return tuple(samples)


def is_tight(samples: list[float]) -> bool:
    """Whether the median of `samples` is known to within TIGHT."""
    low, high = median_interval(samples)
    middle = median(samples)
    return middle > 0 and (high - low) / 2 <= TIGHT * middle


@contextmanager
def host_load(context: dict[str, float]) -> Iterator[None]:
    """Fill `context` with what else the CPUs did meanwhile: 'stolen_share' of all CPU time, 'other_cpus_max' busy."""
    meter = Meter()
    yield
    beside = meter.read()
    if beside is None:
        return
    context["other_cpus_max"] = beside.other_cpus
    if beside.stolen_share is not None:
        context["stolen_share"] = beside.stolen_share


def sample_point(bench: Bench, row: Row, once: Callable[[], float], budget_s: float, warm_up: int = 2) -> Reading:
    """One row's reading in this round: samples of `once`, with the host's load and the CPU's clock beside them."""
    context: dict[str, float] = {}
    began = time.monotonic()
    with host_load(context):
        samples = collect_samples(once, budget_s, warm_up)
    ended = time.monotonic()
    clock = bench.clock_ghz()
    if clock is not None:
        context["cpu_clock_ghz"] = context["cpu_clock_ghz_max"] = clock
    return Reading(
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
    """A function giving work per second of `action`, repeated inside one sample until that lasts `at_least_s`."""
    started = time.perf_counter()
    action()
    repeats = max(1, round(at_least_s / max(1e-9, time.perf_counter() - started)))

    def once() -> float:
        start = time.perf_counter_ns()
        for _ in range(repeats):
            action()
        return work * repeats / ((time.perf_counter_ns() - start) / 1e9)

    return once
