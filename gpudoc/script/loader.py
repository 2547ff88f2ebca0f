"""The loader of a script: tune's loader search, with a launch of the script for each of its stretches."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpudoc.errors import GpudocError
from gpudoc.profile.model import Loader
from gpudoc.script.findings import ScriptFindings, is_own
from gpudoc.script.look import ScriptLook
from gpudoc.script.outcome import busy_times
from gpudoc.script.runner import CommandSession
from gpudoc.stats import quantile
from gpudoc.tune.loader.bounds import bounds_here
from gpudoc.tune.loader.messages import LoaderRun
from gpudoc.tune.loader.search import Search, search_loader
from gpudoc.tune.loader.session import MeasurementError
from gpudoc.tune.model.loader import DEFAULT_PREFETCH, SAME_SHARE, LoaderCosts, LoaderSetting
from gpudoc.tune.model.noise import noise_of
from gpudoc.tune.trial.messages import End, OfLaunch, Trial, TrialRequest

# a smaller share of waiting is below the least difference that the choice sees
NOTHING_TO_GAIN = 0.01
_STRETCH_S = 2.0
_ROUNDS, _EXTRA_ROUNDS = 1, 2
_STRETCH_STEPS = 16
_QUICK = 0.25
# a launch ends before its second epoch, so the cost of starting an epoch is not measured
_WHY_PERSISTENT = "persistent_workers true: workers are not restarted at every epoch"


def tune_loader(session: CommandSession, found: ScriptFindings, *, seconds: float) -> None:
    """Fill `feed` within `seconds`; it is None if no loader was seen, if it must not change, or if it cannot gain."""
    look = session.runner.look
    kept = why_kept(look)
    if kept:
        session.say(f"loader: {kept}")
        found.feed_reasons = (f"loader left unchanged: {kept}",)
        return
    measures = LaunchMeasures(session, found)
    try:
        alone = measures.without_workers()
        in_a_crowd = noise_of([alone]) is not None
        costs = costs_of(look, alone, measures.with_one(), in_a_crowd=in_a_crowd)
        search = Search(
            measures=measures,
            costs=costs,
            bounds=bounds_here(ranks=look.ranks, seconds=seconds),
            batches_per_epoch=max(1, (look.feeding.length if look.feeding else None) or 1),
            persistent=True,
            stretch_s=_STRETCH_S,
            progress=session.progress,
            rounds=_ROUNDS,
            extra_rounds=_EXTRA_ROUNDS,
            overhead_s=session.runner.overhead_s,
            deadline=session.deadline,
            in_a_crowd=in_a_crowd,
        )
        choice = search_loader(search, samples_per_batch=look.batch or 1, pin_memory=look.on_gpu)
    except (MeasurementError, GpudocError) as problem:
        found.feed = None
        found.feed_reasons = (f"loader left unchanged: {problem}",)
        if isinstance(problem, MeasurementError) and (problem.is_late or problem.hangs):
            found.unsearched = f"the loader was not searched: {problem}"
        return
    found.feed = feed = Loader(
        num_workers=choice.num_workers,
        prefetch_factor=choice.prefetch_factor,
        pin_memory=choice.pin_memory,
        persistent_workers=choice.persistent_workers and "persistent_workers" not in measures.refused,
    )
    reasons = [_WHY_PERSISTENT if line.startswith("persistent_workers true") else line for line in choice.reasons]
    if not feed.persistent_workers:
        reasons = [line for line in reasons if line != _WHY_PERSISTENT]
    refused = tuple(f"{name} stays as in the script: {why}" for name, why in measures.refused.items())
    found.feed_reasons, found.feed_notes = (*reasons, *refused), tuple(measures.notes)
    own = look.training.num_workers if look.training is not None else 0
    found.num_loaders = len({one.setting for one in choice.trials if one.runs and one.setting.num_workers != own})


def why_kept(look: ScriptLook) -> str:
    """Why the loader is not searched; '' if it is."""
    loader = look.training
    if loader is None:
        return "no DataLoader fed the steps"
    if loader.iterable and not loader.sharded:
        return (
            f"the data set of {loader.place} is iterable and does not use get_worker_info, so every worker would read "
            "all of it"
        )
    if look.wait_share < NOTHING_TO_GAIN:
        return f"the step waits {look.wait_share:.1%} of its time for data, so there is nothing to gain"
    return ""


@dataclass(slots=True)
class LaunchMeasures:
    """Timed stretches of the script's own steps with a given loader; satisfies `loader.search.Measures`.

    `found` proposes the fastest launch so far, so that an interrupted search has an answer.
    """

    session: CommandSession
    found: ScriptFindings
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _counts: dict[LoaderSetting, int] = field(default_factory=dict)
    _best_s: float | None = None

    def run(self, setting: LoaderSetting, *, seconds: float, period_s: float) -> LoaderRun:
        """Run one launch; MeasurementError if it failed, or if the script does not take the setting."""
        del period_s
        trial = self._launch(setting, seconds)
        step_s = trial.measured["mean_step_s"] / self.session.runner.look.micro_batches
        return LoaderRun(
            step_s=step_s,
            steps=int(trial.measured["steps"]),
            wait_share=trial.measured["wait_share"],
            start_s=step_s,
            restart_s=step_s,
        )

    def without_workers(self) -> Trial:
        """Steps that wait for the whole making of a batch: the look's own steps, or a launch without workers."""
        return self._launch(self._with(0), _STRETCH_S, count=0)

    def with_one(self) -> Trial:
        """A launch with one worker: its memory, and the settings that the script refuses."""
        return self._launch(self._with(1), _STRETCH_S, count=0)

    def _with(self, num_workers: int) -> LoaderSetting:
        return LoaderSetting(num_workers=num_workers, pin_memory=self.session.runner.look.on_gpu)

    def _launch(self, setting: LoaderSetting, seconds: float, count: int | None = None) -> Trial:
        turn = self._counts.get(setting, 0) if count is None else count
        if count is None:
            self._counts[setting] = turn + 1
        if turn == 0 and self._is_own(setting):
            assert self.session.runner.own is not None
            return self.session.runner.own
        feed = Loader(
            num_workers=setting.num_workers,
            prefetch_factor=setting.prefetch_factor,
            pin_memory=setting.pin_memory,
            persistent_workers=setting.num_workers > 0,
        )
        request = TrialRequest(
            kind="loader",
            batches=(),
            variant=self.session.variant,
            feed=feed,
            steps=_STRETCH_STEPS,
            seconds_per_batch=seconds,
            repeat=turn,
        )
        is_begun = self.session.can_run(request)
        trial = self.session.run(request)
        if trial.end is End.TIME_UP:
            raise MeasurementError(trial.detail, hangs=is_begun, is_late=not is_begun)
        if trial.end is End.HANG:
            raise MeasurementError(trial.detail, hangs=True)
        if not trial.fits or "mean_step_s" not in trial.measured:
            raise MeasurementError(trial.detail or trial.end.value)
        if "num_workers" in trial.refused:
            raise MeasurementError(f"num_workers stays: {trial.refused['num_workers']}")
        self.refused.update(trial.refused)
        self.notes += [note for note in trial.notes if note not in self.notes]
        self._propose(feed, trial)
        return trial

    def _propose(self, feed: Loader, trial: Trial) -> None:
        """Take a launch as the answer if it is the fastest so far, by more than the noise between two launches."""
        look, step_s = self.session.runner.look, trial.measured["mean_step_s"]
        if is_own(feed, look) or step_s * (1 + SAME_SHARE) > (self._best_s or look.step_s):
            return
        self._best_s = step_s
        refused = "persistent_workers" in self.refused
        self.found.feed = feed.model_copy(update={"persistent_workers": feed.persistent_workers and not refused})
        workers = f"num_workers {feed.num_workers}"
        self.found.feed_reasons = (f"{workers}: the fastest of the settings that were tried before the search ended",)
        self.found.num_loaders = max(1, self.found.num_loaders)
        self.session.say(
            f"  so far: {workers}, about {look.step_s / step_s:.2f} times the script's own speed; Ctrl+C keeps it"
        )

    def _is_own(self, setting: LoaderSetting) -> bool:
        """Whether the launch of the look had this setting, without workers."""
        own, session = self.session.runner.look.training, self.session
        if session.runner.own is None or own is None or session.runner.own.request.variant != session.variant:
            return False
        return not (setting.num_workers or own.num_workers) and setting.pin_memory == own.pin_memory


def costs_of(look: ScriptLook, alone: Trial, helped: Trial, *, in_a_crowd: bool = False) -> LoaderCosts:
    """What a batch and a step cost: `alone` ran without workers, so its waiting is the making of a batch.

    The system counts the CPU time of step and batch together; the time beyond one CPU for the step is taken as the
    batch's. Memory is what `helped`, with one worker and two batches ahead, used beyond `alone`. With `in_a_crowd` the
    quicker steps give the length of a step: other processes only slow steps down, and the profile outlives them.
    """
    micro = look.micro_batches
    waits = tuple(wait / micro for wait in alone.legs.get("wait_s", ()))
    batch_s = sum(waits) / len(waits) if waits else 0.0
    step_s = max(1e-6, alone.measured["mean_step_s"] / micro - batch_s)
    cpu_s = alone.measured.get("cpu_s", 0.0) / micro
    worker_cpu_s = min(batch_s, max(0.0, cpu_s - step_s))
    quick = 1.0
    if in_a_crowd and (busy_s := busy_times(alone)):
        quick = min(1.0, quantile(busy_s, _QUICK) / micro / step_s)
    return LoaderCosts(
        batch_s=waits or (1e-6,),
        worker_cpu_s=worker_cpu_s,
        main_s=0.0,
        step_s=quick * step_s,
        step_cpu_s=quick * max(0.0, cpu_s - worker_cpu_s),
        batch_bytes=int(_grown(alone, helped, "shm_bytes") / DEFAULT_PREFETCH),
        worker_private_bytes=int(_grown(alone, helped, "private_bytes")),
    )


def _grown(alone: Trial, helped: Trial, name: OfLaunch) -> float:
    return max(0.0, helped.measured.get(name, 0.0) - alone.measured.get(name, 0.0))
