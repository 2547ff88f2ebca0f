"""The first probe of the search for the largest batch, from the plan of a step instead of a calibration."""

from __future__ import annotations

from gpudoc.policy import Policy, parse
from gpudoc.tune.model.memory import MemoryLine
from gpudoc.tune.search.session import WorkloadSession
from gpudoc.tune.trial.messages import POLICY, RUNG, End, PlanQuestion, Trial, TrialRequest

# time limit of a trace: a GPT-2-small-shaped step takes under 2 s, 7 B parameters under 20 s
PLAN_SECONDS = 15.0
_PLAN_SHARE = 0.15
# time limit of a ladder, which consists of several plans
_LADDER_SECONDS = 120.0
_PLANNING = "planning the step's memory without running it"


def foresee_ladder(session: WorkloadSession) -> tuple[tuple[str, int], ...]:
    """(change, bytes) of the plan's changes that would make batch 1 fit on this GPU, each on top of those before it.

    Empty if the plan cannot say. The budget does not end this: it is asked only if nothing that was tried fits.
    """
    question = PlanQuestion(asks="ladder", limit_bytes=session.runner.limit_bytes or 0)
    request = TrialRequest(kind="plan", batches=(1,), variant=session.variant, question=question)
    trial = session.run(request, _PLANNING, most_s=_LADDER_SECONDS)
    told = _told(trial, RUNG)
    if not trial.fits or not told:
        session.say(f"gpudoc cannot plan what would make it fit: {trial.detail or trial.end.value}"[:160])
        return ()
    return tuple((change, int(peak)) for change, peak in told.items())


def foresee_policy(
    session: WorkloadSession,
    batch: int,
    share: float = 1.0,
    *,
    capability: tuple[int, int] | None = None,
    is_most: bool = False,
) -> tuple[Policy, float] | None:
    """The cheapest activation checkpointing with which `batch` should fit into `share` of the limit, and its time
    factor; None if no policy fits, if the batch fits without one, or if the plan cannot say.

    With `is_most` the batch is the largest up to `batch` that should fit with any policy.
    """
    limit_bytes = int(share * (session.runner.limit_bytes or 0))
    request = TrialRequest(
        kind="plan",
        batches=(batch,),
        variant=session.variant,
        accumulate_below=session.accumulate_below,
        question=PlanQuestion(asks="most" if is_most else "policy", limit_bytes=limit_bytes, capability=capability),
    )
    trial = session.run(request, _PLANNING, most_s=PLAN_SECONDS)
    told = _told(trial, POLICY)
    if not trial.fits or not told:
        return None
    ((name, slowdown),) = told.items()
    return True if name == "true" else parse(name), slowdown


def foresee(session: WorkloadSession, *, cap: int, capability: tuple[int, int] | None = None) -> MemoryLine | None:
    """The plan's line of memory near the largest batch; None, with a message, if the step cannot be traced in time."""
    seen = session.runner.seen(session.variant)
    question = PlanQuestion(
        limit_bytes=session.runner.limit_bytes or 0,
        capability=capability,
        seen=None if seen is None or seen.peak_bytes is None else (seen.batch, seen.peak_bytes),
    )
    request = TrialRequest(
        kind="plan",
        batches=(cap,),
        variant=session.variant,
        accumulate_below=session.accumulate_below,
        question=question,
    )
    trial = session.run(request, _PLANNING, most_s=min(PLAN_SECONDS, max(1.0, _PLAN_SHARE * session.free_s)))
    found = trial.measured
    if not trial.fits or "bytes_per_sample" not in found:
        if trial.end is End.TIME_UP and not session.left_s:
            return None
        reason = trial.detail or f"it ended with {trial.end.value}"
        session.say(f"the step cannot be planned, so memory is calibrated by running it: {reason[:160]}")
        return None
    return MemoryLine(
        batch=int(found["batch"]), peak_bytes=int(found["peak_bytes"]), bytes_per_sample=found["bytes_per_sample"]
    )


def _told(trial: Trial, kind: str) -> dict[str, float]:
    """The plan's answers; the trial's measurements also hold the load of other processes."""
    return {name.removeprefix(kind): at for name, at in trial.measured.items() if name.startswith(kind)}
