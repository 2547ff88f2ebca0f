"""How fast a loader can feed a step: a queue of workers, computed from measured times; pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

DEFAULT_PREFETCH = 2
PREFETCH_FACTORS = (2, 4, 8, 16)
SAME_SHARE = 0.02
SIMULATED_BATCHES = 400
# of one timed stretch: steps that do not count, and the fewest that do
WARM_STEPS = 2
LEAST_STEPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSetting:
    """The arguments of a DataLoader; the prefetch factor has no effect without workers."""

    num_workers: int
    prefetch_factor: int = DEFAULT_PREFETCH
    pin_memory: bool = False

    @property
    def batches_ahead(self) -> int:
        """Batches that the workers may hold ready or under way."""
        return self.num_workers * self.prefetch_factor


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderCosts:
    """The measured costs of one batch: `batch_s` are wall seconds of one worker on an idle machine, batch by batch."""

    batch_s: tuple[float, ...]
    worker_cpu_s: float
    main_s: float
    step_s: float
    step_cpu_s: float
    batch_bytes: int
    worker_private_bytes: int

    @property
    def mean_batch_s(self) -> float:
        """Seconds one worker needs for a batch."""
        return sum(self.batch_s) / len(self.batch_s)

    @property
    def wait_s(self) -> float:
        """The part of that time that waits (disk, network, sleep) and needs no CPU."""
        return max(0.0, self.mean_batch_s - self.worker_cpu_s)

    @property
    def fed_s(self) -> float:
        """Seconds per step if every batch is ready in time: the step and the main process's own part."""
        return self.step_s + self.main_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderBounds:
    """The resources for the loader of one training process, None if unknown; `seconds` are for measuring it."""

    cpus: float
    ram_bytes: int | None = None
    shm_bytes: int | None = None
    seconds: float = 60.0

    @property
    def most_workers(self) -> int:
        """The most workers worth trying, however much they wait."""
        return max(16, math.ceil(2 * self.cpus))


def resample_batches(sample_s: Sequence[float], batch_size: int, overhead_s: float, count: int) -> tuple[float, ...]:
    """Seconds of `count` batches drawn from measured samples: rare slow samples appear even after few real batches."""
    draw = random.Random(0)
    return tuple(sum(draw.choices(sample_s, k=batch_size)) + overhead_s for _ in range(count))


def ram_needed_bytes(setting: LoaderSetting, costs: LoaderCosts) -> int:
    """The most host memory of the workers and their batches: private pages, ready batches, and two in use."""
    if setting.num_workers == 0:
        return 2 * costs.batch_bytes
    batches = setting.batches_ahead + 2 + (setting.batches_ahead if setting.pin_memory else 0)
    return setting.num_workers * costs.worker_private_bytes + batches * costs.batch_bytes


def limit_broken(setting: LoaderSetting, costs: LoaderCosts, bounds: LoaderBounds) -> str | None:
    """The bound that the setting would break, as a name for a sentence; None if it breaks none."""
    if setting.num_workers > bounds.most_workers:
        return f"the cap of {bounds.most_workers} workers"
    if setting.num_workers == 0:
        return None
    if bounds.shm_bytes is not None and (setting.batches_ahead + 1) * costs.batch_bytes > bounds.shm_bytes:
        return "/dev/shm"
    if bounds.ram_bytes is not None and ram_needed_bytes(setting, costs) > bounds.ram_bytes:
        return "memory"
    return None


def fitting(num_workers: int, costs: LoaderCosts, bounds: LoaderBounds, *, pin_memory: bool) -> LoaderSetting | None:
    """The setting with these workers and the usual prefetch, or one batch each if memory is short; None if it breaks a
    bound."""
    for factor in (DEFAULT_PREFETCH, 1) if num_workers else (DEFAULT_PREFETCH,):
        setting = LoaderSetting(num_workers=num_workers, prefetch_factor=factor, pin_memory=pin_memory)
        if limit_broken(setting, costs, bounds) is None:
            return setting
    return None


def simulate(costs: LoaderCosts, setting: LoaderSetting) -> float:
    """Seconds per step of an in-order loader with these workers and unlimited CPUs, simulated from the measured times.

    As in PyTorch, batch i goes to worker i modulo the workers, once batch i - workers * prefetch was taken.
    """
    workers, ahead = setting.num_workers, setting.batches_ahead
    free_at = [0.0] * workers
    taken_at: list[float] = []
    draw = random.Random(0)
    times = list(costs.batch_s)
    draw.shuffle(times)
    main_free = 0.0
    for index in range(SIMULATED_BATCHES):
        dealt = taken_at[index - ahead] if index >= ahead else 0.0
        worker = index % workers
        done = max(dealt, free_at[worker]) + times[index % len(times)]
        free_at[worker] = done
        taken = max(done, main_free) + costs.main_s
        taken_at.append(taken)
        main_free = taken + costs.step_s
    # the first quarter fills the queue
    skip = SIMULATED_BATCHES // 4
    return (taken_at[-1] - taken_at[skip]) / (SIMULATED_BATCHES - 1 - skip)


def predict_period(costs: LoaderCosts, setting: LoaderSetting, cpus: float) -> float:
    """Seconds per step with this setting: those of the queue, but at least the CPUs' time for the work of a step."""
    if setting.num_workers == 0:
        return costs.mean_batch_s + costs.step_s
    return max(simulate(costs, setting), cpu_period(costs, cpus))


def cpu_period(costs: LoaderCosts, cpus: float) -> float:
    """Seconds per step that the CPUs need for the step and its batch together, if the work is shared perfectly."""
    return (costs.worker_cpu_s + costs.main_s + costs.step_cpu_s) / cpus


def fewest_workers(costs: LoaderCosts, bounds: LoaderBounds, *, pin_memory: bool) -> LoaderSetting:
    """The fewest workers (at least one) predicted within 2 % of the best; no workers if not even one fits."""
    options = [fitting(n, costs, bounds, pin_memory=pin_memory) for n in range(1, bounds.most_workers + 1)]
    allowed = [option for option in options if option is not None]
    if not allowed:
        return LoaderSetting(num_workers=0, pin_memory=pin_memory)
    periods = [predict_period(costs, option, bounds.cpus) for option in allowed]
    best = min(periods)
    return next(o for o, period in zip(allowed, periods, strict=True) if period <= best * (1 + SAME_SHARE))


def is_negligible(share: float) -> bool:
    """Whether loading takes so little of a step that no loader could make a relevant difference."""
    return share < SAME_SHARE / 2


def choose_prefetch(costs: LoaderCosts, setting: LoaderSetting, bounds: LoaderBounds) -> tuple[LoaderSetting, float]:
    """The smallest prefetch factor within 1 % of the best that fits, and the gain of the best one over it."""
    if setting.num_workers == 0:
        return setting, 0.0
    wider = [
        LoaderSetting(num_workers=setting.num_workers, prefetch_factor=factor, pin_memory=setting.pin_memory)
        for factor in PREFETCH_FACTORS
        if factor > setting.prefetch_factor
    ]
    options = [setting, *(option for option in wider if limit_broken(option, costs, bounds) is None)]
    periods = [predict_period(costs, option, bounds.cpus) for option in options]
    best = min(periods)
    chosen = next(i for i, period in enumerate(periods) if period <= best * 1.01)
    return options[chosen], periods[chosen] / best - 1


def neighbour(num_workers: int, *, up: bool) -> int:
    """The next worker count worth a run: one more or less if counts are small, a factor of 1.5 if they are large."""
    if up:
        return max(num_workers + 1, round(num_workers * 1.5))
    return max(0, min(num_workers - 1, round(num_workers / 1.5)))
