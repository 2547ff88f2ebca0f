"""The largest batch within a search: as it is, with activation checkpointing, or with another way to save memory."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.errors import GpudocError
from gpudoc.policy import Policy, in_words
from gpudoc.tune.findings import Findings, SearchPlan
from gpudoc.tune.model.memory import MemoryLine
from gpudoc.tune.model.speed import MEMORY_LEFT_SHARE, SAME_SHARE, fastest, fit_step_time, is_clearly_faster
from gpudoc.tune.search.foresight import foresee, foresee_ladder, foresee_policy
from gpudoc.tune.search.largest import Largest, NothingFitsError, find_largest, predict_largest, settle_largest
from gpudoc.tune.search.runner import VariantFailedError
from gpudoc.tune.search.session import WorkloadSession, why_rejected
from gpudoc.tune.search.variants import ways_out
from gpudoc.tune.trial.deadline import TimeUpError
from gpudoc.tune.trial.messages import Point, TrialRequest, Variant
from gpudoc.units import format_bytes

STEADY_STEPS = 20
LEAST_STEADY_STEPS = 4
# steps of a fit, of the last partial batch, and the one during a checkpoint
_STEPS_BEFORE = 5
# small steps are worth their time if they replace far larger ones
_MANY_TIMES = 16
# share of the budget left at the start of the search for the largest batch
_LARGEST_SHARE = 0.5
_STEADY_SHARE = 0.35
_ALIKE_SHARE = 0.05
# one more forward pass, a third of a step: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016
_RECOMPUTED = 4 / 3
# batch normalization cannot train on one sample
_SMALL_BATCH = 2
# steps after a checkpoint, if small steps were all equal and these do not change memory
_ENOUGH_STEPS = 5
_RECOMPUTE_NAME = "activation_checkpointing"


def size_batch(session: WorkloadSession, plan: SearchPlan, found: Findings) -> None:
    """Fill `largest`, and change the variant if that lets more fit; GpudocError if nothing fits at all."""
    _give_share(session)
    if plan.goal == "largest":
        _recompute_for_size(session, plan, found)
    try:
        found.largest = _search(session, plan, found.variant)
    except NothingFitsError as problem:
        found.largest = _way_out(session, plan, found, problem)
    except TimeUpError as problem:
        found.notes.append(f"the largest batch was not searched: {problem.message}")
        session.release()
        return
    session.release()
    _count_what_ran(found)
    found.notes += [note for note in found.largest.notes if note not in found.notes]


def _count_what_ran(found: Findings) -> None:
    """Count larger batches that were timed before, if the budget ended the search early: they ran as well."""
    largest = found.largest
    if largest is None or largest.complete or largest.fails_at is not None:
        return
    timed = [trial for trial in (*found.defaults, *found.variants) if trial.request.variant == found.variant]
    ran = [point.batch for trial in timed if trial.fits for point in trial.points]
    largest.batch = max(largest.batch, *ran) if ran else largest.batch


def affordable_steps(session: WorkloadSession, batch: int) -> int:
    """Steady steps that fit into a share of the remaining budget; the rest of the script costs about four steps."""
    if not session.runner.samples_per_s:
        return STEADY_STEPS
    room = _STEADY_SHARE * session.free_s * session.runner.samples_per_s / batch - 4
    return min(STEADY_STEPS, max(0, int(room)))


def recompute_for_speed(session: WorkloadSession, plan: SearchPlan, found: Findings) -> None:
    """Try activation checkpointing if memory limits the speed: it is kept if its larger batch is measurably faster."""
    before = found.variant, found.speeds, found.largest
    # if a part cannot be recomputed, recomputing everything may still work
    for in_part in (True, False) if plan.abilities.has_policies else (False,):
        try:
            _recompute_for_speed(session, plan, found, in_part=in_part)
        except TimeUpError:
            session.release()
            found.variant, found.speeds, found.largest = before
        except VariantFailedError as problem:
            session.release()
            found.variant, found.speeds, found.largest = before
            _reject_recomputing(session, found, problem)
            if problem.trial.request.variant.activation_checkpointing is not True:
                continue
        return


def _reject_recomputing(session: WorkloadSession, found: Findings, problem: VariantFailedError) -> None:
    policy = problem.trial.request.variant.activation_checkpointing
    name = _RECOMPUTE_NAME if policy is True else f"{_RECOMPUTE_NAME} {policy}"
    found.rejected[name] = f"{name}: {why_rejected(problem.trial)}"
    session.say(f"  {found.rejected[name]}")


def _recompute_for_speed(session: WorkloadSession, plan: SearchPlan, found: Findings, *, in_part: bool) -> None:
    largest, best = found.largest, fastest(found.speeds)
    binds = largest is not None and largest.line is not None and _roomy(largest, plan.useful) < plan.useful
    if plan.goal != "throughput" or not binds or best is None or not _may_recompute(plan, found.variant):
        return
    assert largest is not None
    at_most = expected_gain(found.speeds, plan.useful)
    if at_most is None:
        return
    policy: Policy = True
    slowdown = _RECOMPUTED
    # recomputing a part may cost almost nothing: the plan is asked for one if a larger batch would pay at all
    if in_part and at_most * _RECOMPUTED >= 1 + SAME_SHARE:
        policy, slowdown = _foreseen(session, plan, found.variant, plan.useful, 1 - MEMORY_LEFT_SHARE)
        at_most *= _RECOMPUTED / slowdown
    if at_most < 1 + SAME_SHARE:
        repeats = "it recomputes a third of every step"
        if policy is not True:
            repeats = f"{in_words(policy)} takes {slowdown:.2f} times the time of a step or more"
        found.reasons[_RECOMPUTE_NAME] = (
            f"activation_checkpointing not tried: {repeats}, and batch {plan.useful} would "
            f"then reach {at_most:.2f} times the speed at most"
        )
        return
    variant = found.variant.model_copy(update={_RECOMPUTE_NAME: policy})
    points = _time_recomputed(session, plan, variant, _roomy(largest, plan.useful))
    faster = fastest(points)
    if faster is None or faster.samples_per_s is None:
        return
    ratio = faster.samples_per_s / (best.samples_per_s or 1.0)
    said = f"{ratio:.2f} times the speed at batch {faster.batch}, which does not fit without it"
    if not is_clearly_faster(faster, best):
        found.reasons[_RECOMPUTE_NAME] = f"activation_checkpointing not used: {said}"
        return
    found.reasons[_RECOMPUTE_NAME] = f"activation_checkpointing {_shown(policy)}: {said}"
    found.variant, found.speeds = variant, points
    _give_share(session)
    found.largest = _search(session, plan, variant)
    session.release()


def _foreseen(
    session: WorkloadSession, plan: SearchPlan, variant: Variant, batch: int, share: float = 1.0
) -> tuple[Policy, float]:
    """The cheapest policy with which `batch` should fit, and its time factor; every block if no policy is known."""
    session.release()
    session.variant = variant
    found = foresee_policy(session, batch, share, capability=plan.abilities.capability)
    return found or (True, _RECOMPUTED)


def expected_gain(points: Sequence[Point], batch: int) -> float | None:
    """At most how many times the best measured speed `batch` reaches if activations are recomputed; None if unknown."""
    line, best = fit_step_time(points), fastest(points)
    if line is None or best is None or not best.samples_per_s or line.at(batch) <= 0:
        return None
    return batch / (_RECOMPUTED * line.at(batch)) / best.samples_per_s


def _give_share(session: WorkloadSession) -> None:
    session.share_s = session.spent_s + _LARGEST_SHARE * max(0.0, session.free_s)


def _search(session: WorkloadSession, plan: SearchPlan, variant: Variant) -> Largest:
    """The largest batch under `variant`, run through the whole script if the budget allows."""
    session.release()
    session.variant = variant
    limit = session.runner.limit_bytes
    assert limit is not None
    cap = plan.cap if plan.goal == "largest" else _affordable_cap(session, plan)
    expected = foresee(session, cap=cap, capability=plan.abilities.capability)
    _compare_steps(session, plan, expected)
    largest = find_largest(session, limit_bytes=limit, cap=cap, expected=expected)
    steps = affordable_steps(session, largest.batch)
    if steps < STEADY_STEPS and plan.goal != "largest":
        return largest
    if not can_start(session, largest.batch, steps=LEAST_STEADY_STEPS + 4):
        largest.notes.append(f"steady state at batch {largest.batch} was not run: the budget is used up")
        return largest
    return settle_largest(session, largest, steps=max(LEAST_STEADY_STEPS, min(steps, STEADY_STEPS)))


def can_start(session: WorkloadSession, batch: int, *, steps: int = 6) -> bool:
    """Whether a trial of `steps` steps at `batch` should end before the reserved time begins."""
    return session.runner.expected_s(batch, steps=steps) <= session.free_s


def _affordable_cap(session: WorkloadSession, plan: SearchPlan) -> int:
    """The largest batch that is worth its time if speed is the goal: no batch above `useful` is ever chosen."""
    cap = plan.cap
    while cap > plan.useful and not session.can_afford(4.0 * cap):
        cap = max(plan.useful, cap // 2)
    return cap


def _compare_steps(session: WorkloadSession, plan: SearchPlan, expected: MemoryLine | None) -> None:
    """Find out from small steps whether a few large steps are enough, on a CPU, where a large step takes seconds.

    Not for compiled steps, which cannot be inspected, nor for several ranks, which would have to agree.
    """
    if session.runner.device != "cpu" or session.runner.ranks > 1 or session.variant.compile or expected is None:
        return
    if min(plan.cap, expected.largest(session.runner.limit_bytes or 0)) >= _MANY_TIMES:
        compare_steps(session, STEADY_STEPS + _STEPS_BEFORE, _ALIKE_SHARE * max(0.0, session.free_s))


def compare_steps(session: WorkloadSession, steps: int, seconds: float) -> None:
    """Learn whether `steps` small steps under the variant are all equal, within `seconds`.

    A failure in such a trial says nothing about the large steps: all of those are run then.
    """
    # several threads would cost more time than they save for this little work
    trial = session.run(session.request("alike", _SMALL_BATCH, steps=steps, threads=1), most_s=seconds)
    if trial.fits and trial.measured.get("alike"):
        session.enough[session.variant] = _ENOUGH_STEPS


def _recompute_for_size(session: WorkloadSession, plan: SearchPlan, found: Findings) -> None:
    """Use activation checkpointing for the largest batch if one calibration each predicts that more fits with it.

    The plan names the cheapest of the policies that let most fit; all blocks if it cannot, or if that policy fails.
    """
    if not _may_recompute(plan, found.variant):
        return
    plain = _predict(session, plan, found.variant)
    if not plain or plain >= plan.cap or session.spent_s > session.share_s:
        return
    ways: dict[Policy, str] = {}
    if plan.abilities.has_policies:
        foreseen = foresee_policy(session, plan.cap, capability=plan.abilities.capability, is_most=True)
        if foreseen is not None:
            ways[foreseen[0]] = (
                f"; the cheapest one with which as many fit, {foreseen[1]:.2f} times a step's time at least"
            )
    ways.setdefault(True, "")
    for policy, told in ways.items():
        variant = found.variant.model_copy(update={_RECOMPUTE_NAME: policy})
        session.say(f"{in_words(policy)} may let more fit; calibrating with it")
        try:
            recomputed = _predict(session, plan, variant) or 0
        except VariantFailedError as problem:
            _reject_recomputing(session, found, problem)
            continue
        said = f"{recomputed} samples are predicted to fit with it, {plain} without"
        if recomputed > (1 + SAME_SHARE) * plain:
            found.variant = variant
            found.reasons[_RECOMPUTE_NAME] = f"activation_checkpointing {_shown(policy)}: {said}{told}"
        else:
            found.reasons[_RECOMPUTE_NAME] = f"activation_checkpointing not used: {said}"
        return


def _predict(session: WorkloadSession, plan: SearchPlan, variant: Variant) -> int | None:
    session.release()
    session.variant = variant
    limit = session.runner.limit_bytes
    assert limit is not None
    return predict_largest(session, limit_bytes=limit, cap=plan.cap)


def _time_recomputed(session: WorkloadSession, plan: SearchPlan, variant: Variant, above: int) -> tuple[Point, ...]:
    """Speed at the batch that fits with recomputed activations; empty if it is not larger, or no time is left."""
    limit = session.runner.limit_bytes
    predicted = _predict(session, plan, variant)
    assert limit is not None
    batch = min(plan.useful, int((1 - MEMORY_LEFT_SHARE) * (predicted or 0)))
    if batch <= above or not can_start(session, batch):
        return ()
    request = TrialRequest(
        kind="speed", batches=(batch,), variant=variant, ranks=session.runner.ranks, seconds_per_batch=1.0
    )
    trial = session.run(request, f"speed at batch {batch} with {in_words(variant.activation_checkpointing)}")
    return trial.points if trial.fits else ()


def _may_recompute(plan: SearchPlan, variant: Variant) -> bool:
    return plan.abilities.can_recompute and not variant.activation_checkpointing


def _roomy(largest: Largest, useful: int) -> int:
    """The largest batch up to `useful` that keeps the free memory of `--goal throughput`."""
    if largest.line is None:
        return min(useful, largest.batch)
    within = largest.line.largest(int((1 - MEMORY_LEFT_SHARE) * largest.limit_bytes))
    return min(useful, within, largest.batch)


def _way_out(session: WorkloadSession, plan: SearchPlan, found: Findings, first: NothingFitsError) -> Largest:
    """Try ways to save memory one by one, cheapest first, if batch 1 does not fit; else the error that names them."""
    tried: list[tuple[str, int | None]] = []
    untried: list[str] = []
    policy = _foreseen(session, plan, found.variant, 1)[0] if plan.abilities.has_policies else False
    for name, changes in ways_out(plan.abilities, found.variant, policy):
        if not session.left_s:
            untried.append(name)
            continue
        session.say(f"batch 1 does not fit: trying {name}")
        variant = found.variant.model_copy(update=dict(changes))
        try:
            largest = _search(session, plan, variant)
        except TimeUpError:
            untried.append(name)
            continue
        except NothingFitsError as problem:
            tried.append((name, problem.needed_bytes))
            continue
        except VariantFailedError as problem:
            session.say(f"  {name}: {why_rejected(problem.trial)}")
            tried.append((name, None))
            continue
        for field in changes:
            if getattr(found.variant, field) != getattr(variant, field):
                shown = _shown(getattr(variant, field))
                found.reasons[field] = f"{field} {shown}: batch 1 does not fit in {_limit(first)} without"
        found.variant = variant
        return largest
    session.variant = found.variant
    on_gpu = plan.abilities.device.startswith("cuda")
    raise _nothing_fits(first, tried, foresee_ladder(session) if on_gpu else (), untried)


def _nothing_fits(
    first: NothingFitsError,
    tried: Sequence[tuple[str, int | None]],
    ladder: Sequence[tuple[str, int]],
    untried: Sequence[str],
) -> GpudocError:
    if not tried and not ladder and not untried:
        return first
    rungs = [f"{change} {format_bytes(peak)}" for change, peak in ladder]
    predicted = f"; predicted and not run, each on top of those before it: {', '.join(rungs)}" if rungs else ""
    longer = "; or use a longer --budget to try what saves memory" if untried else ""
    predicted += f"; not tried, because the budget was used up: {', '.join(untried)}" if untried else ""
    needs = [f"{name} " + (f"(needs {format_bytes(needed)})" if needed else "(fails too)") for name, needed in tried]
    known = [needed for needed in (first.needed_bytes, *(needed for _, needed in tried)) if needed]
    least = min(known, default=None)
    hint = first.hint if least is None else f"--memory-limit {least * 105 // 100 // 2**20 + 1}MiB, a smaller model, "
    return NothingFitsError(
        f"{first.message}{'; tried as well: ' if needs else ''}{', '.join(needs)}{predicted}",
        hint=(hint if least is None else hint + "or shorter samples") + longer,
        needed_bytes=least,
        limit_bytes=first.limit_bytes,
    )


def _shown(value: object) -> str:
    return "on" if value is True else str(value)


def _limit(problem: NothingFitsError) -> str:
    return format_bytes(problem.limit_bytes)
