"""The order of a search: the default to beat, variants, the largest batch, speed, the loader, the choice comparison."""

from __future__ import annotations

from typing import Protocol

from gpudoc.errors import GpudocError
from gpudoc.profile.model import Loader
from gpudoc.tune.findings import Findings, SearchPlan
from gpudoc.tune.model.gain import speed_with_data
from gpudoc.tune.model.speed import pooled, sizes_to_time
from gpudoc.tune.search.choose import BatchChoice, choose_batch
from gpudoc.tune.search.comparison import Side, compare_in_turns, loses
from gpudoc.tune.search.levers import give_up, plain_request, try_variants
from gpudoc.tune.search.runner import VariantFailedError
from gpudoc.tune.search.session import WorkloadSession, why_rejected
from gpudoc.tune.search.sizing import LEAST_STEADY_STEPS, affordable_steps, recompute_for_speed, size_batch
from gpudoc.tune.search.variants import LEVERS
from gpudoc.tune.trial.messages import End, Trial, TrialRequest, Variant

_TIMED_SHARE = 1 / 60
# seconds of timing for a speed (least and most), for a first estimate of a batch's time, and least for a loader
_LEAST_TIMED_S = 0.4
_MOST_TIMED_S = 3.0
_GLANCE_S = 0.1
_LEAST_LOADER_S = 6.0
# share of a step that waits for data, above which the loader promises more than any lever or batch
_WAITS_SHARE = 0.5
# trials of a search for the largest batch and the fastest, and of the closing comparison; seconds of loader stretches
_BATCH_TRIALS, _CLOSING_TRIALS, _LOADER_S = 8, 3, 15.0


class LoaderTuner(Protocol):
    """How the loader is tuned once the batch is chosen."""

    def __call__(self, session: WorkloadSession, plan: SearchPlan, found: Findings) -> None:
        """Measure and choose; fills `feed`, its reasons and its trials."""


def run_stages(session: WorkloadSession, plan: SearchPlan, found: Findings, loader: LoaderTuner | None = None) -> None:
    """Fill `found` in the order of user value; stops early with the findings so far if the budget is used up.

    A variant that won at the reference batch but fails later is given up, and the rest of the search runs without it.
    """
    session.base = found.variant = plan.base
    session.accumulate_below = plan.accumulate_below
    session.repeats = found.asked_for_speed = not plan.is_for_size_alone
    if plan.goal == "largest" and session.runner.device == "cpu":
        found.variant = plan.base.model_copy(update={"allocator": "exact"})
    _run_default(session, plan, found)
    found.needed_s = _needed_s(session, plan)
    session.reserved_s = _comparison_s(session, plan, plan.reference)
    try:
        if loader is not None and _waits_for_data(session, plan, found):
            session.say("the default waits for its data, so the loader comes first")
            found.choice = BatchChoice(plan.reference, None, f"micro_batch {plan.reference}: the reference batch")
            loader(session, plan, found)
        if "speed" in plan.parts:
            try_variants(session, plan, found, _timed_s(session, plan))
        _choose(session, plan, found, loader)
    except VariantFailedError as problem:
        session.release()
        _give_up(session, plan, found, problem.trial)
        _choose(session, plan, found, loader)


def _choose(session: WorkloadSession, plan: SearchPlan, found: Findings, loader: LoaderTuner | None) -> None:
    """Choose the batch and the loader for the variant found."""
    session.variant = found.variant
    if "batch" in plan.parts:
        size_batch(session, plan, found)
    if "speed" in plan.parts:
        _time_batches(session, plan, found)
        if "batch" in plan.parts:
            recompute_for_speed(session, plan, found)
    session.variant = found.variant
    found.choice = choose_batch(plan.goal, found.speeds, found.largest, plan.useful, plan.reference, plan.ceiling)
    _run_steady(session, found)
    # the closing comparison of the default and the choice: one trial of each
    session.reserved_s = _comparison_s(session, plan, found.choice.batch)
    if "loader" in plan.parts and loader is not None:
        _tune_loader(session, plan, found, loader)
    _compare_with_default(session, plan, found)


def _tune_loader(session: WorkloadSession, plan: SearchPlan, found: Findings, loader: LoaderTuner) -> None:
    """Tune the loader at the chosen batch, unless it was tuned at this batch already, or no time is left."""
    assert found.choice is not None
    batch = found.choice.batch
    if any(trial.request.batches == (batch,) for trial in found.feed_trials):
        return
    # the loader is measured in a process that imports and reads all again; then the choice is timed at least once
    closing_s = session.runner.expected_s(batch, steps=_fed_steps(Loader())) + _LEAST_TIMED_S
    if session.left_s > _LEAST_LOADER_S + session.journal.start_s + closing_s:
        session.reserved_s = min(session.reserved_s, session.left_s - _LEAST_LOADER_S - session.journal.start_s)
        loader(session, plan, found)
    elif found.feed_trials:
        found.notes.append(f"the loader was tuned at batch {plan.reference} and not again at {batch}: no time was left")
    else:
        found.notes.append("the loader was not tuned: the budget is used up")


def _waits_for_data(session: WorkloadSession, plan: SearchPlan, found: Findings) -> bool:
    """Whether the default waits for its data most of the time, so that the loader promises the largest gain."""
    if not {"speed", "loader"} <= plan.parts or plan.goal != "throughput":
        return False
    ready = session.attempt(
        plain_request(session, plan, found.variant, _timed_s(session, plan)),
        "speed of one step with data that is ready",
    )
    fed, fast = speed_with_data(found.defaults), speed_with_data([ready])
    return fed is not None and fast is not None and fed.high < (1 - _WAITS_SHARE) * fast.low


def _needed_s(session: WorkloadSession, plan: SearchPlan) -> float:
    """About how many seconds the whole search should take here, by the default's time outside its steps."""
    levers = sum(lever.is_worth_a_trial(plan.abilities, plan.goal, plan.base) for lever in LEVERS)
    trials = 1 + _CLOSING_TRIALS
    trials += levers + 1 if "speed" in plan.parts else 0
    trials += _BATCH_TRIALS if "batch" in plan.parts else 0
    start_s = session.journal.start_s
    loader_s = start_s + _LOADER_S if "loader" in plan.parts else 0.0
    return start_s + loader_s + trials * (session.runner.overhead_s + _MOST_TIMED_S)


def _give_up(session: WorkloadSession, plan: SearchPlan, found: Findings, failed: Trial) -> None:
    """Go back to the plain variant, and report the failure."""
    changed = [name for name in Variant.model_fields if getattr(found.variant, name) != getattr(plan.base, name)]
    shown = ", ".join(f"{name} {getattr(found.variant, name)}" for name in changed)
    give_up(found, why_rejected(failed), "it failed later")
    tried = {name for row in found.tried for name in row.changes}
    for name in (name for name in changed if name not in tried):
        found.rejected[name] = f"{shown}: {why_rejected(failed)}"
    session.say(f"  {shown}: {why_rejected(failed)}")
    found.variant, found.largest, found.speeds, found.joints = plan.base, None, (), []
    session.reserved_s = _comparison_s(session, plan, plan.reference)


def _timed_s(session: WorkloadSession, plan: SearchPlan) -> float:
    """Seconds to time a trial; only a glance if just a size is asked for, to see how far the budget reaches."""
    if plan.is_for_size_alone:
        return _GLANCE_S
    return min(_MOST_TIMED_S, max(_LEAST_TIMED_S, session.budget_s * _TIMED_SHARE))


def _comparison_s(session: WorkloadSession, plan: SearchPlan, batch: int) -> float:
    """Seconds of the closing comparison, at most a quarter of the budget."""
    steps = _fed_steps(Loader())
    once = session.runner.expected_s(plan.reference, steps=steps) + session.runner.expected_s(batch, steps=steps)
    return min(0.25 * session.budget_s, once + 2 * _timed_s(session, plan))


def _default_request(session: WorkloadSession, plan: SearchPlan, variant: Variant, repeat: int) -> TrialRequest:
    return TrialRequest(
        kind="default",
        batches=(plan.reference,),
        variant=variant,
        feed=Loader(),
        ranks=session.runner.ranks,
        seconds_per_batch=2 * _timed_s(session, plan),
        repeat=repeat,
    )


def _run_default(session: WorkloadSession, plan: SearchPlan, found: Findings) -> None:
    why = f"your default, to compare with: batch {plan.reference}, {plan.base.precision}, no loader workers"
    # another allocator needs another fork server, which is started only for a comparison
    variant = found.variant if plan.is_for_size_alone else plan.base
    trial = session.attempt(_default_request(session, plan, variant, 0), why)
    if trial.end is End.TIME_UP:
        raise GpudocError(
            f"your default could not be timed before {session.deadline.told}, so nothing could be tried",
            hint=session.deadline.hint,
        )
    found.defaults.append(trial)
    if not trial.fits:
        found.notes.append(f"the default does not run here: {trial.end.told} in {trial.stage}: {trial.detail[:160]}")


def _time_batches(session: WorkloadSession, plan: SearchPlan, found: Findings) -> None:
    largest = found.largest.batch if found.largest else plan.useful
    useful = largest if plan.goal == "largest" else plan.useful
    sizes = sizes_to_time(reference=plan.reference, largest=largest, useful=useful)
    rate = session.runner.samples_per_s or 1.0
    affordable = 0.4 * session.free_s - session.runner.overhead_s
    known = pooled(p for t in found.variants if t.request.variant == found.variant and t.fits for p in t.points)
    if known and rate:
        # the reference batch was timed with this variant already
        sizes = tuple(size for size in sizes if size != plan.reference)
    while sizes and 6 * sum(sizes) / rate > affordable:
        sizes = sizes[1:] if sizes[0] < plan.reference else sizes[:-1]
    found.speeds = known
    if not sizes:
        found.notes.append("the budget was too small to time batches other than the reference")
        return
    request = TrialRequest(
        kind="speed",
        batches=sizes,
        variant=found.variant,
        ranks=session.runner.ranks,
        # two rounds, in each of which every size warms up
        seconds_per_batch=round(
            min(_timed_s(session, plan), max(0.0, affordable - 4 * sum(sizes) / rate) / len(sizes)), 2
        ),
    )
    trial = session.run(request, f"speed at batch {', '.join(map(str, sizes))}")
    found.speeds = tuple(sorted((*known, *trial.points), key=lambda p: p.batch))
    if not trial.fits:
        found.notes.append(f"timing stopped at batch {trial.failed_batch}: {trial.end.told}")


def _run_steady(session: WorkloadSession, found: Findings) -> None:
    """Run the whole script at the chosen batch, unless the largest batch already went through it."""
    choice, largest = found.choice, found.largest
    if choice is None or largest is None or (largest.settled and choice.batch <= largest.batch):
        return
    steps = affordable_steps(session, choice.batch)
    if steps < LEAST_STEADY_STEPS:
        found.notes.append(f"steady state at batch {choice.batch} was not run: the budget is used up")
        return
    trial = session.steady(choice.batch, steps=steps)
    session.release()
    if trial.end is End.TIME_UP:
        found.notes.append(f"steady state at batch {choice.batch} was not run to its end: the budget is used up")
    elif not trial.fits:
        found.notes.append(f"steady state at batch {choice.batch}: {trial.end.told}: {trial.detail[:160]}")
        if trial.end.is_too_large:
            smaller = max(1, choice.batch // 2)
            found.choice = BatchChoice(smaller, choice.fastest, f"micro_batch {smaller}: {choice.batch} fails later")


def _compare_with_default(session: WorkloadSession, plan: SearchPlan, found: Findings) -> None:
    """Compare the choice with the default in turns, both fed by real loaders; the faster one is kept."""
    if found.choice is None or plan.is_for_size_alone:
        return
    batch, feed = found.choice.batch, found.feed or Loader()
    if (batch, found.variant, feed) == (plan.reference, plan.base, Loader()):
        found.kept_default = True
        return

    def ask(side: Side, turn: int) -> TrialRequest | None:
        is_choice = side == "joint"
        at, steps = (batch, _fed_steps(feed)) if is_choice else (plan.reference, _fed_steps(Loader()))
        least_s = session.runner.expected_s(at, steps=steps)
        if least_s > session.left_s:
            return None
        # the first trial counts most; the others share the time that it leaves
        room = (session.left_s - least_s) * (0.9 if turn else 0.5)
        timed_s = round(min(2 * _timed_s(session, plan), max(_LEAST_TIMED_S, room)), 2)
        request = _default_request(session, plan, plan.base, turn)
        choice = {"kind": "joint", "batches": (batch,), "variant": found.variant, "feed": feed} if is_choice else {}
        return request.model_copy(update={**choice, "seconds_per_batch": timed_s})

    compare_in_turns(session, found, (("joint", 0), ("default", 1), ("joint", 1)), ask)
    if not found.joints:
        found.notes.append("the choice was not compared with the default on real data: the budget is used up")
    _keep_the_faster(plan, found)


def _fed_steps(feed: Loader) -> int:
    """The fewest steps of a trial fed by a loader: prefetched batches before the clock starts, and as many timed."""
    ahead = max(1, feed.num_workers * feed.prefetch_factor)
    return max(2, ahead) + max(3, ahead)


def _keep_the_faster(plan: SearchPlan, found: Findings) -> None:
    """Keep the default if the choice failed, or if it was chosen for its speed and is not surely faster."""
    ratio, failed = found.gain.ratio, found.failed_with_data
    is_lost = plan.goal == "throughput" and loses(found.gain, is_sure=True)
    assert found.choice is not None
    if failed and any(trial.fits for trial in found.defaults):
        found.notes.append(f"the tuned settings failed with your data ({failed}), so the default stands")
        why = "it failed with your data"
    elif is_lost and (found.largest is None or plan.reference <= found.largest.batch):
        assert ratio is not None
        within = f" ({ratio.low:.2f} to {ratio.high:.2f}: such timings vary by that much)" if ratio.high > 1 else ""
        found.notes.append(
            f"the tuned settings reached {ratio.middle:.2f} times the default's speed{within}, so the default stands"
        )
        why = "the default was not beaten"
    else:
        return
    found.kept_default = True
    give_up(found, f"with your data {why.removesuffix(' with your data')}")
    found.variant, found.feed, found.reasons = plan.base, Loader(), {}
    found.choice = BatchChoice(plan.reference, found.choice.fastest, f"micro_batch {plan.reference}: {why}")
