"""Judge the training loop's work apart from computing: Python, logging, checkpoints, communication, compiling."""

from __future__ import annotations

from gpudoc.doctor.causes.job_input import WORTH_TELLING
from gpudoc.doctor.live.finders import watched
from gpudoc.doctor.live.gain import without
from gpudoc.doctor.live.phases import COMPUTE, DATA, TRAINING, Phase
from gpudoc.doctor.live.say import PROC, STACKS, at_sites, estimated, finding, percent, spent, worst_place
from gpudoc.doctor.live.shares import JobShares, RankShares, entries, wanted_s
from gpudoc.doctor.model import Finding, Observation
from gpudoc.doctor.remedies import do
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Watch

_OWN = (Phase.PYTHON, Phase.SLEEP)
_OWN_FAULT = (*_OWN, Phase.LOGGING, Phase.CHECKPOINT)
# the phases of a rank while the others wait for it
_BEFORE_OTHERS = (*COMPUTE, *_OWN, Phase.DATA_WAIT, Phase.DATA_LOAD)


def judge_python(watch: Watch, lead: RankShares) -> Finding | None:
    """The user's own Python code in the loop, if it takes the time, busy or asleep."""
    share = lead.share(*_OWN)
    # without a step in the watch, there is no loop that could be faster
    if share < WORTH_TELLING or lead.share(*TRAINING, Phase.COLLECTIVE) == 0:
        return None
    worst = worst_place(watch, lead, *_OWN)
    title = f"{percent(share)} of the time is spent in your own Python code, mostly at {worst}{_function(lead)}"
    seen = (*spent(watch, lead, "python_in_the_loop", "time_goes_to", *_OWN), estimated(without(share)))
    elsewhere = "once before training, into the dataset's workers, or as tensor operations"
    fix = (do(f"Move the work at {worst} out of the step: {elsewhere}."),)
    return finding("python_bound", lost=share, title=title, evidence=seen, fix=fix)


def _function(lead: RankShares) -> str:
    """' in NAME()' for the function whose lines take the most time together; '' if it has no name."""
    totals: dict[str, float] = {}
    for site in lead.lines(*_OWN):
        name = site.frame.function.rpartition(".")[2]
        totals[name] = totals.get(name, 0.0) + site.share
    name = max(totals, key=lambda name: totals[name], default="<unknown>")
    return "" if name.startswith("<") else f" in {name}()"


def judge_logging(watch: Watch, lead: RankShares) -> Finding | None:
    """Time spent on printing, progress bars, metrics and trackers."""
    share = lead.share(Phase.LOGGING)
    if share < WORTH_TELLING:
        return None
    worst = worst_place(watch, lead, Phase.LOGGING, otherwise="the framework's logger")
    title = f"{percent(share)} of the time is spent on logging, mostly at {worst}"
    seen = (*spent(watch, lead, "logging", "time_goes_to", Phase.LOGGING), estimated(without(share)))
    return finding("logging_each_step", lost=share, title=title, evidence=seen)


def judge_checkpoint(watch: Watch, lead: RankShares) -> Finding | None:
    """Time spent on writing checkpoints."""
    share = lead.share(Phase.CHECKPOINT)
    if share < WORTH_TELLING:
        return None
    spans = entries((False, *(phase is Phase.CHECKPOINT for phase in lead.timeline)))
    rate: tuple[Observation, ...] = ()
    if lead.track is not None and not isinstance(lead.track.write_chars, Absent):
        rate = (Observation("written", f"{lead.track.write_chars / 1e6 / watch.seconds:.0f} MB/s", PROC),)
    title = f"{percent(share)} of the time is spent writing checkpoints ({spans} seen in {watch.seconds:.0f} s)"
    seen = (*spent(watch, lead, "checkpoint", "saved_at", Phase.CHECKPOINT), *rate, estimated(without(share)))
    fix = (
        do(f"Save {max(2, round(share / 0.02))} times less often; then it takes about 2 % of the time."),
        do("Save in the background instead: copy the state to host memory, and write it in a thread."),
    )
    return finding("checkpoint_too_often", lost=share, sure=0.75, title=title, evidence=seen, fix=fix)


def judge_communication(watch: Watch, job: JobShares, lead: RankShares) -> Finding | None:
    """Time in collectives, and in backward passes that wait for them: the main thread is there and no CPU works."""
    if len(job.ranks) < 2 and lead.rank is None:
        return None
    share = sum(r.share(Phase.COLLECTIVE) for r in job.ranks) / len(job.ranks)
    in_backward = _blocked_in_backward(watch, job)
    total = share + in_backward
    if total < WORTH_TELLING:
        return None
    late = max(job.ranks, key=lambda rank: rank.share(*_BEFORE_OTHERS))
    early = min(job.ranks, key=lambda rank: rank.share(*_BEFORE_OTHERS))
    uneven = late.share(Phase.COLLECTIVE) < 0.5 * early.share(Phase.COLLECTIVE) and len(job.ranks) > 1
    if uneven and late.share(*DATA, *_OWN_FAULT) >= WORTH_TELLING:
        # the others wait for a late rank, and the cause of its delay is the finding
        return None
    hint = f"; rank {late.rank} is the last to arrive" if uneven else ""
    title = f"{percent(total)} of the time is spent on communication between the ranks{hint}"
    seen = (
        Observation("in_collectives", f"{percent(share)} of the ranks' time", STACKS),
        Observation("waiting_inside_backward", percent(in_backward), PROC),
        *at_sites(early.lines(Phase.COLLECTIVE), watch, "called_at"),
        estimated(without(total)),
    )
    return finding("communication_bound", lost=total * 0.9, title=title, evidence=seen)


def _blocked_in_backward(watch: Watch, job: JobShares) -> float:
    """Share of the time in which the ranks waited in backward: DDP's exchange does not show as a frame.

    It is estimated from the moments that py-spy dump found idle, or from the main threads' waits on a futex.
    """
    tracked = [r.track for r in job.ranks if r.track is not None]
    # if threads of torch's pool work while the main thread waits for them, the process waits for itself
    if not tracked or sum(map(wanted_s, tracked)) / watch.seconds / len(tracked) > 1.3:
        return 0.0
    backward = sum(r.share(Phase.BACKWARD) for r in job.ranks) / len(job.ranks)
    glances = () if isinstance(watch.glances, Absent) else watch.glances
    inside = [g for g in glances if g.frames and g.frames[-1].function.endswith("_engine_run_backward")]
    idle = sum(not g.active for g in inside) / len(inside) if len(inside) >= 5 else 0.0
    on_futex = sum(t.blocked.get("futex", 0) / max(1, t.looks) for t in tracked) / len(tracked)
    return max(idle * backward, min(on_futex, backward))


def judge_compile(watch: Watch, lead: RankShares) -> Finding | None:
    """torch.compile that compiles again and again, long after the first step."""
    late = [phase is Phase.COMPILE for phase in lead.timeline[len(lead.timeline) // 2 :]]
    spans, share = entries((False, *late)), lead.share(Phase.COMPILE)
    if share < WORTH_TELLING or sum(late) < 0.1 * len(late) or spans < 2:
        return None
    title = f"torch.compile compiles again and again: {percent(share)} of {watch.seconds:.0f} s"
    seen = (
        Observation("compiling", f"{percent(share)} of the time, {spans} times in the second half", STACKS),
        *at_sites(lead.lines(Phase.COMPILE), watch, "compiled_for"),
        estimated(without(share)),
    )
    return finding("compile_recompiles", lost=share, sure=0.7, title=title, evidence=seen)


FINDERS = (
    watched("python_bound", judge_python),
    watched("logging_each_step", judge_logging),
    watched("checkpoint_too_often", judge_checkpoint),
    watched("communication_bound", judge_communication),
    watched("compile_recompiles", judge_compile),
)
