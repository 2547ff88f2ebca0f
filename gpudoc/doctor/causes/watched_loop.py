"""What the training loop itself does besides computing: Python, logging, checkpoints, communication, compiling."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpudoc.doctor.causes.watched_input import WORTH_TELLING
from gpudoc.doctor.live.gain import without
from gpudoc.doctor.live.phases import COMPUTE, DATA, TRAINING, Phase
from gpudoc.doctor.live.say import PROC, STACKS, at_sites, estimated, finding, percent, place
from gpudoc.doctor.live.shares import JobShares, RankShares, Site, summarise
from gpudoc.doctor.model import Evidence, Finder, Finding, Observation, Remedy, Skip
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Watch

_OWN_FAULT = (Phase.PYTHON, Phase.SLEEP, Phase.LOGGING, Phase.CHECKPOINT)
Judge = Callable[[Watch, JobShares, RankShares], "Finding | None"]


def _with_lead(name: str, judge: Judge) -> Finder:
    def find(evidence: Evidence) -> Iterator[Finding | Skip]:
        if evidence.watch is None:
            return
        job = summarise(evidence.watch)
        if job.lead is None:
            stacks = evidence.watch.stacks
            yield Skip(f"stacks: {stacks.reason}" if isinstance(stacks, Absent) else "no training process was seen")
            return
        found = judge(evidence.watch, job, job.lead)
        if found is not None:
            yield found

    return Finder(id=name, find=find, reads="watch")


def judge_python(watch: Watch, job: JobShares, lead: RankShares) -> Finding | None:
    """The user's own Python in the loop, where it takes the time and keeps a CPU busy, or sleeps."""
    del job
    share = lead.share(Phase.PYTHON, Phase.SLEEP)
    # without a step in the watch it is no loop that could be faster
    if share < WORTH_TELLING or lead.share(*TRAINING, Phase.COLLECTIVE) == 0:
        return None
    sites = sorted((*lead.sites.get(Phase.PYTHON, ()), *lead.sites.get(Phase.SLEEP, ())), key=lambda s: -s.share)
    functions = _by_function(sites)
    worst = place(sites[0].frame, watch) if sites else "unknown"
    return finding(
        "python_bound",
        lost=share,
        title=f"{percent(share)} of the time goes into your own Python code, most at {worst}"
        + (f" in {functions[0]}()" if functions and not functions[0].startswith("<") else ""),
        evidence=(
            Observation("python_in_the_loop", f"{percent(share)} of the main thread's time", STACKS),
            *at_sites(sites, watch, "time_goes_to"),
            estimated(without(share)),
        ),
        fix=(
            Remedy(
                say=f"Move the work at {worst} out of the step: once before training, into the dataset's "
                f"workers, or as tensor operations."
            ),
        ),
    )


def _by_function(sites: list[Site]) -> list[str]:
    totals: dict[str, float] = {}
    for site in sites:
        name = site.frame.function.rpartition(".")[2]
        totals[name] = totals.get(name, 0.0) + site.share
    return sorted(totals, key=lambda name: -totals[name])


def judge_logging(watch: Watch, job: JobShares, lead: RankShares) -> Finding | None:
    """Printing, progress bars, metrics and trackers."""
    del job
    share = lead.share(Phase.LOGGING)
    if share < WORTH_TELLING:
        return None
    sites = lead.sites.get(Phase.LOGGING, ())
    worst = place(sites[0].frame, watch) if sites else "the framework's logger"
    return finding(
        "logging_each_step",
        lost=share,
        title=f"{percent(share)} of the time goes into logging, most at {worst}",
        evidence=(
            Observation("logging", f"{percent(share)} of the main thread's time", STACKS),
            *at_sites(sites, watch, "time_goes_to"),
            estimated(without(share)),
        ),
    )


def judge_checkpoint(watch: Watch, job: JobShares, lead: RankShares) -> Finding | None:
    """Writing checkpoints."""
    share = lead.share(Phase.CHECKPOINT)
    if share < WORTH_TELLING:
        return None
    sites = lead.sites.get(Phase.CHECKPOINT, ())
    written = lead.track.write_chars if lead.track is not None else Absent("not tracked")
    spans = sum(
        here is Phase.CHECKPOINT and before is not Phase.CHECKPOINT
        for before, here in zip((None, *lead.timeline), lead.timeline, strict=False)
    )
    rate = (
        (Observation("written", f"{written / 1e6 / job.seconds:.0f} MB/s", PROC),) if isinstance(written, int) else ()
    )
    return finding(
        "checkpoint_too_often",
        lost=share,
        sure=0.75,
        title=f"{percent(share)} of the time goes into writing checkpoints ({spans} seen in {job.seconds:.0f} s)",
        evidence=(
            Observation("checkpoint", f"{percent(share)} of the main thread's time", STACKS),
            *rate,
            *at_sites(sites, watch, "saved_at"),
            estimated(without(share)),
        ),
        fix=(
            Remedy(say=f"Save {max(2, round(share / 0.02))} times less often: then it costs about 2 % of the time."),
            Remedy(say="Save in the background instead: copy the state to host memory, and write it in a thread."),
        ),
    )


def judge_communication(watch: Watch, job: JobShares, lead: RankShares) -> Finding | None:
    """Collectives, and backward passes that wait for them: the main thread stands in backward and no CPU works."""
    if len(job.ranks) < 2 and lead.rank is None:
        return None
    share = sum(r.share(Phase.COLLECTIVE) for r in job.ranks) / len(job.ranks)
    in_backward = _blocked_in_backward(watch, job)
    total = share + in_backward
    if total < WORTH_TELLING:
        return None
    late = max(job.ranks, key=lambda r: r.share(*COMPUTE, Phase.PYTHON, Phase.SLEEP, Phase.DATA_WAIT, Phase.DATA_LOAD))
    early = min(job.ranks, key=lambda r: r.share(*COMPUTE, Phase.PYTHON, Phase.SLEEP, Phase.DATA_WAIT, Phase.DATA_LOAD))
    uneven = late.share(Phase.COLLECTIVE) < 0.5 * early.share(Phase.COLLECTIVE) and len(job.ranks) > 1
    if uneven and late.share(*DATA, *_OWN_FAULT) >= WORTH_TELLING:
        # the others wait for a rank that is late for a cause of its own, which is the finding then
        return None
    sites = early.sites.get(Phase.COLLECTIVE, ())
    hint = f"; rank {late.rank} is the last to arrive" if uneven else ""
    return finding(
        "communication_bound",
        lost=total * 0.9,
        title=f"{percent(total)} of the time goes into communication between the ranks{hint}",
        evidence=(
            Observation("in_collectives", f"{percent(share)} of the ranks' time", STACKS),
            Observation("waiting_inside_backward", percent(in_backward), PROC),
            *at_sites(sites, watch, "called_at"),
            estimated(without(total)),
        ),
    )


def _blocked_in_backward(watch: Watch, job: JobShares) -> float:
    """Share of the time in which the ranks stood in backward and waited: DDP's exchange has no frame of its own.

    Seen by the moments that py-spy dump found idle, or by the main threads' waits on a futex.
    """
    tracked = [r.track for r in job.ranks if r.track is not None]
    if not tracked or not job.ranks:
        return 0.0
    # threads of torch's pool work while the main thread waits for them: such a process waits for itself
    cores = sum(t.cpu_s + (0.0 if isinstance(t.queued_s, Absent) else t.queued_s) for t in tracked) / watch.seconds
    if cores / len(tracked) > 1.3:
        return 0.0
    backward = sum(r.share(Phase.BACKWARD) for r in job.ranks) / len(job.ranks)
    glances = () if isinstance(watch.glances, Absent) else watch.glances
    inside = [g for g in glances if g.frames and g.frames[-1].function.endswith("_engine_run_backward")]
    idle = sum(not g.active for g in inside) / len(inside) if len(inside) >= 5 else 0.0
    on_futex = sum(t.blocked.get("futex", 0) / max(1, t.looks) for t in tracked) / len(tracked)
    return max(idle * backward, min(on_futex, backward))


def judge_compile(watch: Watch, job: JobShares, lead: RankShares) -> Finding | None:
    """torch.compile at work again and again, long after the first step."""
    half = len(lead.timeline) // 2
    late = [p is Phase.COMPILE for p in lead.timeline[half:]]
    spans = sum(here and not before for before, here in zip((False, *late), late, strict=False))
    share = lead.share(Phase.COMPILE)
    if share < WORTH_TELLING or not late or sum(late) / len(late) < 0.1 or spans < 2:
        return None
    return finding(
        "compile_recompiles",
        lost=share,
        sure=0.7,
        title=f"torch.compile compiles again and again: {percent(share)} of {job.seconds:.0f} s",
        evidence=(
            Observation("compiling", f"{percent(share)} of the time, {spans} times in the second half", STACKS),
            *at_sites(lead.sites.get(Phase.COMPILE, ()), watch, "compiled_for"),
            estimated(without(share)),
        ),
    )


FINDERS = (
    _with_lead("python_bound", judge_python),
    _with_lead("logging_each_step", judge_logging),
    _with_lead("checkpoint_too_often", judge_checkpoint),
    _with_lead("communication_bound", judge_communication),
    _with_lead("compile_recompiles", judge_compile),
)
