"""The batch of a script: the largest that runs, the fastest, and whether the command accepts it."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.script.findings import ScriptFindings
from gpudoc.script.look import ScriptLook
from gpudoc.script.runner import CommandSession
from gpudoc.tune.model.speed import sizes_to_time
from gpudoc.tune.search.choose import choose_batch, explain_knee, explain_largest
from gpudoc.tune.search.largest import BUDGET_ENDS, Largest, find_largest, settle_largest
from gpudoc.tune.trial.messages import Point, TrialRequest

STEADY_STEPS = 20
# larger batches change the training: for speed, at most this many times the script's own batch is offered
MOST_TIMES = 8
_LARGEST_SHARE = 0.6
_STEADY_SHARE = 0.2
_STARVED_SHARE = 0.1
_LEAST_STEADY_STEPS = 6
_TIMED_STEPS, _TIMED_S = 8, 1.5


def size_batch(session: CommandSession, found: ScriptFindings, *, goal: str, max_batch: int | None) -> None:
    """Fill the largest batch, then the speeds up to the useful batch, and the choice; GpudocError if nothing fits."""
    cap = cap_of(session.runner.look, max_batch)
    limit = session.runner.limit_bytes
    assert limit is not None
    session.share_s = session.spent_s + _LARGEST_SHARE * max(0.0, session.free_s)
    largest = find_largest(session, limit_bytes=limit, cap=cap)
    largest.ceiling = _ceiling(session.runner.look, cap, max_batch)
    if largest.batch == cap and not largest.complete:
        # the calibration of memory ran in a separate launch
        largest.complete = True
        largest.notes = [note for note in largest.notes if not note.startswith(BUDGET_ENDS)]
    steps = _steady_steps(session, largest.batch)
    if steps >= _LEAST_STEADY_STEPS:
        largest = settle_largest(session, largest, steps=steps)
    useful = useful_batch(session, cap)
    found.largest = largest
    if goal != "largest":
        _time(session, found, largest, useful)
    speeds = found.speeds
    choice = choose_batch(goal, speeds, largest, useful, session.runner.reference)
    # on a CPU the peak of the imports hides the first samples, which looks like growth
    notes = [_about_waiting(session, speeds)]
    notes += [note for note in largest.notes if session.runner.look.on_gpu or not note.startswith("memory grows")]
    reasons = (choice.why.replace("micro_batch ", "batch "), explain_largest(largest), explain_knee(speeds), *notes)
    found.choice, found.batch_reasons = choice, tuple(reason for reason in reasons if reason)


def _about_waiting(session: CommandSession, speeds: Sequence[Point]) -> str:
    """The batch from which the loader, not the step, limits the speed; '' if there is none."""
    timed = {trial.request.batches[0]: trial for trial in session.journal.trials if trial.request.kind == "speed"}
    waits = [p.batch for p in speeds if timed[p.batch].measured.get("wait_share", 0.0) > _STARVED_SHARE]
    return f"from batch {min(waits)} on the steps waited for data, so the loader is the limit there" if waits else ""


def _steady_steps(session: CommandSession, batch: int) -> int:
    """Further steps that fit into a share of the remaining time."""
    known = [trial for trial in session.journal.trials if trial.fits and trial.request.batches == (batch,)]
    step_s = next((trial.measured["mean_step_s"] for trial in known if "mean_step_s" in trial.measured), 0.0)
    room_s = _STEADY_SHARE * session.free_s - session.runner.look.start_s
    return max(0, min(STEADY_STEPS, int(room_s / max(1e-6, step_s))))


def cap_of(look: ScriptLook, max_batch: int | None) -> int:
    """The largest batch of one rank that a data set of this size can fill."""
    samples = look.training.samples if look.training is not None else None
    most = max(1, samples // look.ranks) if samples else 1 << 20
    return min(most, max_batch or most)


def _ceiling(look: ScriptLook, cap: int, max_batch: int | None) -> str:
    """Why no batch larger than the cap was tried."""
    if cap == max_batch:
        return "--max-batch allows no larger one"
    each = "" if look.ranks == 1 else f" for each of {look.ranks} ranks"
    known = look.training is not None and look.training.samples
    return f"the data set has no more samples{each}" if known else "no larger one was tried"


def useful_batch(session: CommandSession, cap: int) -> int:
    """The largest batch that is offered for its speed."""
    return max(1, min(cap, MOST_TIMES * session.runner.reference))


def _time(session: CommandSession, found: ScriptFindings, largest: Largest, useful: int) -> None:
    """Measure each size in a separate launch, and keep it in `speeds`."""
    sizes = sizes_to_time(reference=session.runner.reference, largest=largest.batch, useful=useful)
    # batches smaller than the script's own are not useful for speed
    sizes = tuple(size for size in sizes if size >= min(session.runner.reference, sizes[-1]))
    # the ends come first: the middle is missed least if the budget ends
    ends = (session.runner.reference, sizes[-1])
    for batch in sorted(sizes, key=lambda size: (size not in ends, -size)):
        if session.runner.overhead_s > session.free_s:
            session.say(f"no time was left to time batch {batch}; use a longer --budget")
            break
        request = TrialRequest(
            kind="speed",
            batches=(batch,),
            variant=session.variant,
            feed=session.feed,
            ranks=session.runner.look.ranks,
            steps=_TIMED_STEPS,
            seconds_per_batch=_TIMED_S,
        )
        trial = session.run(request, f"speed at batch {batch}")
        if trial.fits:
            found.speeds = tuple(sorted((*found.speeds, *trial.points), key=lambda point: point.batch))
