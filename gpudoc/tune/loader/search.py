"""Find DataLoader settings that keep a step fed: predict them from costs, and time at most four real settings."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from gpudoc.errors import GpudocError
from gpudoc.progress import SILENT, Progress
from gpudoc.stats import median, quantile
from gpudoc.tune.loader import reasons
from gpudoc.tune.loader.bounds import bounds_here
from gpudoc.tune.loader.messages import LoaderRun, Open
from gpudoc.tune.loader.session import LoaderSession, MeasurementError
from gpudoc.tune.model.loader import (
    LEAST_STEPS,
    SAME_SHARE,
    WARM_STEPS,
    LoaderBounds,
    LoaderCosts,
    LoaderSetting,
    choose_prefetch,
    cpu_period,
    fewest_workers,
    fitting,
    is_negligible,
    limit_broken,
    neighbour,
    predict_period,
)
from gpudoc.tune.trial.deadline import Deadline
from gpudoc.workload.config import LoadedConfig

MOST_SETTINGS = 4
ROUNDS = 3
EXTRA_ROUNDS = 2
CONTENDER_SHARE = 0.06
STARVED_SHARE = 0.10
WORTH_MORE = 0.7
# two stretches of one setting differ by this share if other processes use the CPUs
CROWD_SHARE = 0.15


class Measures(Protocol):
    """A source of measurements: the measuring process, or a model of one in a test."""

    def run(self, setting: LoaderSetting, *, seconds: float, period_s: float) -> LoaderRun:
        """One timed stretch; MeasurementError if it gave no figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderCandidate:
    """One setting with every timed stretch; `failure` is set if the last attempt gave no figure."""

    setting: LoaderSetting
    predicted_s: float
    runs: tuple[LoaderRun, ...] = ()
    failure: str = ""

    def period_s(self, batches_per_epoch: int, *, persistent: bool) -> float:
        """Seconds per step, with an epoch's start spread over its steps; the lower quartile of the stretches.

        Bursts of other work can only slow a stretch down, so the median would still include some of them.
        """
        return quantile([_period(run, batches_per_epoch, persistent=persistent) for run in self.runs], 0.25)

    @property
    def wait_share(self) -> float:
        """The share of its time that the main process waited for data, 0 to 1."""
        return median([run.wait_share for run in self.runs])


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderChoice:
    """The loader to train with, the reasons for it, and every trial behind it.

    `missing_factor`: how many times faster the step would run if the CPUs could prepare its data in time; None if
    they can.
    """

    num_workers: int
    prefetch_factor: int
    pin_memory: bool
    persistent_workers: bool
    samples_per_s: float
    missing_factor: float | None
    reasons: tuple[str, ...]
    trials: tuple[LoaderCandidate, ...]
    costs: LoaderCosts


@dataclass(slots=True)
class Search:
    """The trials of one search; each setting is measured in stretches, interleaved with the others'.

    `overhead_s` is a stretch's time outside its steps if each stretch starts a new process; `rounds` are fewer then.
    Once a setting has hung, no setting with as many workers is tried. `in_a_crowd`: other processes use the CPUs.
    """

    measures: Measures
    costs: LoaderCosts
    bounds: LoaderBounds
    batches_per_epoch: int
    persistent: bool
    stretch_s: float
    progress: Progress
    rounds: int = ROUNDS
    extra_rounds: int = EXTRA_ROUNDS
    overhead_s: float = 0.0
    trials: dict[LoaderSetting, LoaderCandidate] = field(default_factory=dict)
    left_out: list[LoaderSetting] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    deadline: Deadline = field(default_factory=Deadline)
    hung: list[LoaderSetting] = field(default_factory=list)
    in_a_crowd: bool = False

    def add(self, settings: Sequence[LoaderSetting], rounds: int) -> None:
        """Time each setting `rounds` times, in turns, so that a burst of other work does not hit only one setting."""
        for setting in settings:
            predicted = predict_period(self.costs, setting, self.bounds.cpus)
            self.trials.setdefault(setting, LoaderCandidate(setting=setting, predicted_s=predicted))
        for turn in range(rounds):
            for place in range(len(settings)):
                setting = settings[(place + turn) % len(settings)]
                self._refuse_like_hung(setting)
                if not self.trials[setting].failure and self._may_run(setting):
                    self._time(setting)
        for setting in settings:
            trial = self.trials[setting]
            if not trial.runs and not trial.failure:
                del self.trials[setting]
                self.left_out.append(setting)
                self.progress.say(f"{reasons.name(setting)}: no time was left to try it; use a longer --budget")

    def period_s(self, trial: LoaderCandidate) -> float:
        """Seconds per step of a measured trial."""
        return trial.period_s(self.batches_per_epoch, persistent=self.persistent)

    @property
    def measured(self) -> list[LoaderCandidate]:
        """The trials with a figure, fewest workers first."""
        done = [trial for trial in self.trials.values() if trial.runs and not trial.failure]
        return sorted(done, key=lambda t: (t.setting.num_workers, t.setting.batches_ahead, not t.setting.pin_memory))

    @property
    def best(self) -> LoaderCandidate:
        """The fastest trial."""
        return min(self.measured, key=self.period_s)

    def _time(self, setting: LoaderSetting) -> None:
        trial = self.trials[setting]
        guess = self.period_s(trial) if trial.runs else trial.predicted_s
        self.deadline.show(self.progress, f"the loader: {reasons.name(setting)}")
        try:
            run = self.measures.run(setting, seconds=self.stretch_s, period_s=guess)
        except MeasurementError as problem:
            if problem.is_late:
                return
            if problem.hangs:
                self.hung.append(setting)
            self.trials[setting] = replace(trial, failure=str(problem))
            self.progress.say(f"{reasons.name(setting)}: {problem}")
            return
        self.trials[setting] = replace(trial, runs=(*trial.runs, run))

    def _refuse_like_hung(self, setting: LoaderSetting) -> None:
        like = next((one for one in self.hung if 0 < one.num_workers <= setting.num_workers), None)
        trial = self.trials[setting]
        if like is not None and not trial.runs and not trial.failure:
            self.trials[setting] = replace(trial, failure=f"not tried, since {reasons.name(like)} hung")

    def _may_run(self, setting: LoaderSetting) -> bool:
        """Whether a stretch of the setting should end in time; the first always runs, the second runs if it is short.

        Starting the process may have used most of a small budget, and a single setting is not a comparison.
        """
        trial, done = self.trials[setting], self.measured
        if not done:
            return True
        period = self.period_s(trial) if trial.runs else max(trial.predicted_s, self.best.runs[-1].step_s / 4)
        needed = max(self.stretch_s, LEAST_STEPS * period) + (WARM_STEPS + setting.num_workers) * period
        needed += self.overhead_s
        if len(done) == 1 and not trial.runs and needed <= self.bounds.seconds / 4:
            return True
        return time.monotonic() - self.started + needed <= self.bounds.seconds


def tune_loader(
    asked: Open,
    *,
    bounds: LoaderBounds | None = None,
    progress: Progress = SILENT,
    deadline: Deadline | None = None,
) -> LoaderChoice:
    """The loader that feeds the step of the workload in `asked`, measured on its own data set.

    `bounds` default to this machine's, for one training process. Raises GpudocError if the data cannot be loaded at
    all, MeasurementError if the time is too short for one setting.
    """
    limits, until = bounds or bounds_here(), deadline or Deadline()
    loaded, started = asked.loaded, time.monotonic()
    progress.say(f"loader: timing one worker and the step at batch {asked.batch_size}")
    until.show(progress, "the loader: one worker and the step")
    with LoaderSession(asked, deadline=until) as session:
        costs = session.costs(min(3.0, 0.06 * limits.seconds))
        batches_per_epoch = max(1, -(-session.num_samples // session.batch_size))
        search = Search(
            measures=session,
            costs=costs,
            bounds=limits,
            batches_per_epoch=batches_per_epoch,
            persistent=_runs_epochs(loaded, batches_per_epoch),
            stretch_s=min(3.0, max(0.3, 0.7 * limits.seconds / (MOST_SETTINGS * (ROUNDS + 1)))),
            progress=progress,
            started=started,
            deadline=until,
        )
        return search_loader(search, samples_per_batch=session.batch_size, pin_memory=asked.device.startswith("cuda"))


def search_loader(search: Search, *, samples_per_batch: int, pin_memory: bool) -> LoaderChoice:
    """Measure the settings that the costs suggest and choose the fewest workers within 2 % of the best."""
    costs, bounds = search.costs, search.bounds
    predicted = fewest_workers(costs, bounds, pin_memory=pin_memory)
    predicted, prefetch_gain = choose_prefetch(costs, predicted, bounds)
    search.progress.say(reasons.prediction(costs, predicted, bounds))
    search.add(_first_settings(costs, bounds, predicted), search.rounds)
    _try_fewer_than_hung(search)
    if search.left_out and not any(trial.setting.num_workers for trial in search.measured):
        # the step without workers is known already, and is not a choice if it was compared with nothing
        raise MeasurementError("there was no time for any setting with workers", is_late=True)
    if not search.measured:
        failures = "; ".join(f"{reasons.name(t.setting)}: {t.failure}" for t in search.trials.values())
        raise GpudocError("no loader setting ran", hint=failures)
    fourth = _fourth_setting(search)
    if fourth is not None:
        search.add([search.best.setting, fourth], search.rounds)
    _settle_contenders(search)
    chosen = _choose(search, predicted)
    missing = _missing_factor(search, chosen)
    keeps = search.persistent and chosen.setting.num_workers > 0
    facts = reasons.LoaderOutcome(
        chosen=chosen.setting,
        missing_factor=missing,
        limit=_limit_above(search, chosen),
        prefetch_gain=prefetch_gain,
        left_out=tuple(search.left_out),
        epoch_start_s=median([run.start_s - run.restart_s for run in chosen.runs]),
        keeps_workers=keeps,
        pinned_gain=_pinned_gain(search, chosen),
        tried_workers=any(trial.setting.num_workers for trial in search.trials.values()),
        for_quiet=chosen.setting != _fewest(search).setting,
    )
    return LoaderChoice(
        num_workers=chosen.setting.num_workers,
        prefetch_factor=chosen.setting.prefetch_factor,
        pin_memory=chosen.setting.pin_memory,
        persistent_workers=keeps,
        samples_per_s=samples_per_batch / search.period_s(chosen),
        missing_factor=missing,
        reasons=reasons.sentences(facts, costs, bounds),
        trials=tuple(search.trials.values()),
        costs=costs,
    )


def _try_fewer_than_hung(search: Search) -> None:
    """Try half as many workers after a hang, until some run; each attempt costs at most a third of the time left."""
    while search.hung and not any(trial.setting.num_workers for trial in search.measured):
        count = min(setting.num_workers for setting in search.hung) // 2
        fewer = fitting(count, search.costs, search.bounds, pin_memory=search.hung[0].pin_memory) if count else None
        if fewer is None or fewer in search.trials or fewer in search.left_out:
            return
        search.add([fewer], search.rounds)


def _first_settings(costs: LoaderCosts, bounds: LoaderBounds, predicted: LoaderSetting) -> list[LoaderSetting]:
    """The predicted count, no workers (the default to beat), and the neighbour on the side that may still gain."""
    without = LoaderSetting(num_workers=0, pin_memory=predicted.pin_memory)
    if predicted.num_workers == 0 or is_negligible(costs.mean_batch_s / costs.step_s):
        return [without]
    settings = [predicted, without]
    is_fed = predict_period(costs, predicted, bounds.cpus) <= costs.fed_s * (1 + SAME_SHARE)
    beside = _beside(predicted, costs, bounds, up=not is_fed or predicted.num_workers == 1)
    return [*settings, beside] if beside else settings


def _beside(setting: LoaderSetting, costs: LoaderCosts, bounds: LoaderBounds, *, up: bool) -> LoaderSetting | None:
    """The neighbouring worker count, with the same prefetch if it fits; None below one worker or above a bound."""
    count = neighbour(setting.num_workers, up=up)
    if count == 0:
        return None
    same = replace(setting, num_workers=count)
    if limit_broken(same, costs, bounds) is None:
        return same
    return fitting(count, costs, bounds, pin_memory=setting.pin_memory)


def _fourth_setting(search: Search) -> LoaderSetting | None:
    """The setting for the last run: more workers if more may help, fewer if fewer may do, else unpinned memory."""
    costs, bounds, best = search.costs, search.bounds, search.best
    if len(search.trials) >= MOST_SETTINGS or is_negligible(costs.mean_batch_s / costs.step_s):
        return None
    counts = [t.setting.num_workers for t in search.measured]
    near = [t for t in search.measured if search.period_s(t) <= search.period_s(best) * (1 + SAME_SHARE)]
    fewest, most = near[0].setting, near[-1].setting
    option: LoaderSetting | None = None
    is_starved = search.period_s(best) > costs.fed_s * (1 + SAME_SHARE)
    # one or two stretches cannot separate counts that are nearly as fast, and the larger count may be the better one
    if is_starved and most.num_workers == max(counts):
        option = _more_workers(search) or _beside(most, costs, bounds, up=True)
    elif fewest.num_workers > 1 and fewest.num_workers == min(n for n in counts if n):
        option = _beside(fewest, costs, bounds, up=False)
    if option is None and best.setting.pin_memory:
        option = replace(best.setting, pin_memory=False)
    is_new = option not in search.trials and option not in search.left_out
    return option if is_new else None


def _more_workers(search: Search) -> LoaderSetting | None:
    """As many workers as the step needs by the measured pace; None if the last increase did not bring its share."""
    tried = [trial for trial in search.measured if trial.setting.num_workers]
    if len(tried) < 2:
        return None
    fewer, more = tried[-2:]
    gained = search.period_s(fewer) / search.period_s(more) - 1
    if gained < WORTH_MORE * (more.setting.num_workers / fewer.setting.num_workers - 1):
        return None
    needed = math.ceil(more.setting.num_workers * search.period_s(more) / search.costs.fed_s)
    count = min(needed, 3 * more.setting.num_workers, search.bounds.most_workers)
    return fitting(count, search.costs, search.bounds, pin_memory=more.setting.pin_memory)


def _settle_contenders(search: Search) -> None:
    """Time the settings near the best again while there is time: otherwise bursts of other work decide."""
    limit = search.period_s(search.best) * (1 + CONTENDER_SHARE)
    near = [trial.setting for trial in search.measured if search.period_s(trial) <= limit]
    if len(near) > 1:
        search.add(near, search.extra_rounds)


def _choose(search: Search, predicted: LoaderSetting) -> LoaderCandidate:
    """The fewest workers within 2 % of the best; in a crowd, the workers that the step needs without the crowd.

    Other processes slow the step down, so that fewer workers feed it while they run.
    """
    limit = search.period_s(search.best) * (1 + CROWD_SHARE) if search.in_a_crowd else 0.0
    needed = (trial for trial in search.measured if trial.setting == predicted and search.period_s(trial) <= limit)
    return next(needed, None) or _fewest(search)


def _fewest(search: Search) -> LoaderCandidate:
    limit = search.period_s(search.best) * (1 + SAME_SHARE)
    return next(trial for trial in search.measured if search.period_s(trial) <= limit)


def _missing_factor(search: Search, chosen: LoaderCandidate) -> float | None:
    """How many times slower the fed step is than the step alone, if the CPUs are the reason, not a bound on workers.

    None otherwise, and also if the time was too short to try the settings that could have fed it.
    """
    if search.left_out:
        return None
    period, needed = search.period_s(chosen), cpu_period(search.costs, search.bounds.cpus)
    if period <= search.costs.fed_s * (1 + STARVED_SHARE) or needed <= search.costs.fed_s * (1 + SAME_SHARE):
        return None
    is_held_back = _limit_above(search, chosen) is not None and needed < 0.9 * period
    return None if is_held_back else period / search.costs.fed_s


def _limit_above(search: Search, chosen: LoaderCandidate) -> str | None:
    """The bound that forbids more workers for a step that still waits; None if it does not wait, or without a bound."""
    if search.period_s(chosen) <= search.costs.fed_s * (1 + STARVED_SHARE):
        return None
    more = LoaderSetting(num_workers=chosen.setting.num_workers + 1, prefetch_factor=1)
    return limit_broken(more, search.costs, search.bounds)


def _pinned_gain(search: Search, chosen: LoaderCandidate) -> float | None:
    """The gain of pinned memory over pageable with the same workers, as a share; None unless both ran."""
    other = replace(chosen.setting, pin_memory=not chosen.setting.pin_memory)
    rival = search.trials.get(other)
    if rival is None or not rival.runs:
        return None
    ratio = search.period_s(rival) / search.period_s(chosen)
    return ratio - 1 if chosen.setting.pin_memory else 1 / ratio - 1


def _period(run: LoaderRun, batches_per_epoch: int, *, persistent: bool) -> float:
    boundary = run.restart_s if persistent else run.start_s
    return run.step_s + max(0.0, boundary - run.step_s) / batches_per_epoch


def _runs_epochs(loaded: LoadedConfig, batches_per_epoch: int) -> bool:
    """Whether training passes over the data more than once, so that it can reuse workers that were kept alive."""
    train = loaded.config.train
    return train.steps > batches_per_epoch if train.steps is not None else train.epochs > 1
