"""The loader's settings in sentences, each with its figures as evidence; pure."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoc.tune.model.loader import LoaderBounds, LoaderCosts, LoaderSetting, predict_period
from gpudoc.units import format_bytes, format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderOutcome:
    """The search's facts about the chosen setting; times in seconds, gains as shares.

    `for_quiet`: the step needs this setting once no other process uses the CPUs; fewer workers are enough until then.
    """

    chosen: LoaderSetting
    missing_factor: float | None
    limit: str | None
    prefetch_gain: float
    epoch_start_s: float
    keeps_workers: bool
    pinned_gain: float | None
    left_out: tuple[LoaderSetting, ...] = ()
    tried_workers: bool = True
    for_quiet: bool = False


def name(setting: LoaderSetting) -> str:
    """A setting in words: '4 workers x 2 batches, pinned'."""
    if setting.num_workers == 0:
        return "no workers"
    pinned = ", pinned" if setting.pin_memory else ""
    each = f"{setting.prefetch_factor} {_plural('batch', setting.prefetch_factor)}"
    return f"{_workers(setting.num_workers)} x {each}{pinned}"


def prediction(costs: LoaderCosts, setting: LoaderSetting, bounds: LoaderBounds) -> str:
    """The expectation from the measured costs, before a setting has run."""
    # a process's CPU time is counted in coarse ticks, and may exceed the elapsed time
    on_cpu = format_seconds(min(costs.worker_cpu_s, costs.mean_batch_s))
    return (
        f"loader: a batch costs one worker {format_seconds(costs.mean_batch_s)} "
        f"({on_cpu} of it CPU), a step takes {format_seconds(costs.step_s)}: "
        f"{name(setting)} should give a step every {format_seconds(predict_period(costs, setting, bounds.cpus))}"
    )


def sentences(outcome: LoaderOutcome, costs: LoaderCosts, bounds: LoaderBounds) -> tuple[str, ...]:
    """One reason each for workers, prefetch, pinned memory and persistent workers, and the missing resource, if any."""
    reasons = [_why_workers(outcome, costs)]
    if outcome.chosen.num_workers:
        reasons.append(_why_prefetch(outcome, costs))
    reasons.append(_why_pinned(outcome))
    if outcome.chosen.num_workers:
        reasons.append(_why_persistent(outcome))
    if outcome.left_out:
        names = " and ".join(name(setting) for setting in outcome.left_out)
        reasons.append(f"not tried for lack of time: {names}; use a longer --budget")
    return (*reasons, *_what_is_missing(outcome, costs, bounds))


def _why_workers(outcome: LoaderOutcome, costs: LoaderCosts) -> str:
    """The reason for the workers, without a speed: the gain is timed again with the whole step, and stated first."""
    count = outcome.chosen.num_workers
    batch = (
        f"one worker makes a batch in {format_seconds(costs.mean_batch_s)}, a step takes {format_seconds(costs.step_s)}"
    )
    if count == 0 and any(setting.num_workers for setting in outcome.left_out):
        return f"num_workers 0: {batch}; settings with workers have not been tried yet"
    if count == 0 and not outcome.tried_workers:
        return f"num_workers 0: {batch}, so none with workers was tried"
    if count == 0:
        return f"num_workers 0: {batch}; none of the settings with workers was 2 % faster"
    if outcome.for_quiet:
        return f"num_workers {count}: {batch} if no other process uses the CPUs; fewer do while others slow the step"
    return f"num_workers {count}: {batch}; the fewest within 2 % of the best run"


def _why_prefetch(outcome: LoaderOutcome, costs: LoaderCosts) -> str:
    factor = outcome.chosen.prefetch_factor
    ahead = format_bytes(outcome.chosen.batches_ahead * costs.batch_bytes)
    if factor == 1:
        return f"prefetch_factor 1: two batches per worker would not fit in memory or /dev/shm; {ahead} lie ready"
    gain = f"more would gain {outcome.prefetch_gain:.1%}" if outcome.prefetch_gain > 0 else "more would gain nothing"
    return f"prefetch_factor {factor}: enough for the measured batch times ({gain} in simulation); {ahead} lie ready"


def _why_pinned(outcome: LoaderOutcome) -> str:
    pinned = outcome.chosen.pin_memory
    if outcome.pinned_gain is not None:
        return f"pin_memory {str(pinned).lower()}: pinned memory measured {outcome.pinned_gain:+.1%} against pageable"
    if pinned:
        return "pin_memory true: copies to the GPU run during the step only from pinned memory"
    return "pin_memory false: nothing is copied to a GPU"


def _why_persistent(outcome: LoaderOutcome) -> str:
    if outcome.keeps_workers:
        start = format_seconds(max(0.0, outcome.epoch_start_s))
        return f"persistent_workers true: restarting them would cost {start} an epoch"
    return "persistent_workers false: there is only one pass over the data"


def _what_is_missing(outcome: LoaderOutcome, costs: LoaderCosts, bounds: LoaderBounds) -> tuple[str, ...]:
    if outcome.missing_factor is not None:
        why = f"a batch takes {format_seconds(costs.worker_cpu_s)} of CPU and {bounds.cpus:g} CPUs are usable"
        missing = f"the step runs {outcome.missing_factor:.2f}x slower than it could"
        mend = "more CPUs, cheaper decoding or prepared data would help; more workers would not"
        return (f"the CPU cannot feed this step at any number of workers: {why}; {missing}; {mend}",)
    if outcome.limit is not None:
        return (f"more workers would still help, but {outcome.limit} forbids them",)
    if costs.main_s > 0.15 * costs.fed_s:
        cost = f"{format_seconds(costs.main_s)} for {format_bytes(costs.batch_bytes)}"
        mend = "smaller samples (uint8 instead of float32) would help; more workers would not"
        return (f"receiving a batch costs the main process {cost}: {mend}",)
    return ()


def _workers(count: int) -> str:
    return f"{count} {_plural('worker', count)}"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}es" if word.endswith("ch") else f"{word}s"
