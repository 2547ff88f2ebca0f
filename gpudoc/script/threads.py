"""Threads that sleep while they wait: tried if other processes also compute and OpenMP's threads spin."""

from __future__ import annotations

from dataclasses import replace

from gpudoc.doctor.spinning import may_sleep
from gpudoc.profile.model import VariantTrial
from gpudoc.script.findings import ScriptFindings
from gpudoc.script.look import blocks
from gpudoc.script.outcome import busy_times
from gpudoc.script.runner import CommandSession
from gpudoc.tune.model.noise import noise_of
from gpudoc.tune.search.choose import speedup
from gpudoc.tune.search.levers import row_of
from gpudoc.tune.search.repetition import wins
from gpudoc.tune.search.variants import SLEEPING
from gpudoc.tune.trial.messages import Trial, TrialRequest, Variant

# launches with a repetition of each side, because other processes disturb them; and the fewest that must fit
_LAUNCHES, _FEWEST = 4, 2
# other processes do not explain a gain of this factor in one launch
_CLEARLY = 2.0
_STEPS, _SECONDS = 24, 3.0


def try_sleeping(session: CommandSession, found: ScriptFindings) -> None:
    """If other processes left the look too few CPUs, try sleeping threads; set the session's variant and `tried`.

    Steps are compared without their waiting for data, which another loader will shorten: spinning threads make a step
    look so long that few loader workers seem to be enough.
    """
    noise, look, overhead_s = noise_of(found.defaults), session.runner.look, session.runner.overhead_s
    if look.on_gpu or noise is None or not may_sleep(noise.most_cpus):
        return
    if session.free_s < _FEWEST * overhead_s:
        found.notes.append(
            f"{SLEEPING.name}: not tried, because no time was left. Spinning threads made the steps look longer, so "
            "the loader settings may be too small; use a longer --budget"
        )
        return
    plain = TrialRequest(kind="variant", batches=(), steps=_STEPS, seconds_per_batch=_SECONDS)
    asleep = plain.model_copy(update={"variant": Variant.model_validate(SLEEPING.changes)})
    as_it_is = found.defaults[0].model_copy(update={"request": plain})
    others = f"other processes keep {noise.most_cpus:.1f} CPUs busy while OpenMP's threads spin"
    can_repeat = session.free_s >= _LAUNCHES * overhead_s
    trial = session.run(asleep, f"{others}: trying {SLEEPING.name}")
    before, after = _without_waiting(as_it_is), _without_waiting(trial)
    times = speedup([before], [after])
    # with spinning threads, a step randomly takes up to ten times as long: the uncertainty of the mean hides any gain
    is_faster = times is not None and times >= _CLEARLY
    if not is_faster and can_repeat:
        is_faster = wins(after, before, lambda request: _without_waiting(session.run(request)))
    row = _say_both(row_of(SLEEPING, trial, speedup([as_it_is], [trial]), None, is_faster), times, look.wait_share)
    found.tried.append(row)
    session.say(f"  {row.why}")
    if row.kept:
        session.variant = found.variant = asleep.variant
        # later decisions are made for steps with sleeping threads
        measured = trial.measured
        session.runner.own = trial
        session.runner.look = replace(
            look,
            step_s=measured["mean_step_s"],
            wait_share=measured["wait_share"],
            samples_per_s=measured.get("samples_per_s"),
        )


def _say_both(row: VariantTrial, times: float | None, wait_share: float) -> VariantTrial:
    """The row that also gives the gain without the waiting for data, if the steps waited."""
    if times is None or round(wait_share, 2) == 0.0:
        return row
    said = row.why.replace(" times the speed", f" times the speed, {times:.2f} times without the waiting for data", 1)
    return row.model_copy(update={"why": said})


def _without_waiting(trial: Trial) -> Trial:
    """The trial with step times that exclude the waiting for data; unchanged if single steps are not known."""
    busy_s = busy_times(trial)
    if not trial.points or not busy_s:
        return trial
    return trial.model_copy(update={"points": (trial.points[0].model_copy(update={"step_s": tuple(blocks(busy_s))}),)})
