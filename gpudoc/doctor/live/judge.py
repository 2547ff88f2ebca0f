"""Turn a watch into a Report: with the live finders, and with the text doctor for a command that failed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable

from gpudoc.doctor.causes import job, losses
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.examine import Request, examine_text
from gpudoc.doctor.live.phases import TRAINING, Phase
from gpudoc.doctor.live.say import STACKS, percent, place
from gpudoc.doctor.live.shares import RankShares, summarise
from gpudoc.doctor.model import Evidence, Observation, Report
from gpudoc.facts.live.job import CommandOutcome
from gpudoc.facts.process import Watch
from gpudoc.facts.readers import intake

_END = "command"
# findings about printed losses that a watch may have reported already
_OF_LOSSES = frozenset(
    ("loss_nan", "loss_diverged", "loss_nan_in_data", "loss_nan_sudden", "loss_nan_from_start", "fp16_overflow_nan")
)
# a watch with at least this share of start-up shows too little to judge
MOSTLY = 0.8
# the watch ends early if its first cause is at least this sure
CLEAR = 0.9
# a shell's message for a command that a signal ended, since the command itself cannot print it
_SHELL_SAYS = {4: "Illegal instruction", 6: "Aborted", 7: "Bus error", 9: "Killed", 11: "Segmentation fault"}


def judge(watch: Watch, ignore: Iterable[str] = ()) -> Report:
    """The report of a watched job, without the machine's own facts: those are for `gpudoc doctor` without arguments."""
    began = time.perf_counter()
    report = diagnose(Evidence(source="process", watch=watch), ignore=ignore, finders=job.FINDERS)
    lead = summarise(watch).lead
    if not report.findings and lead is not None and lead.share(*TRAINING, Phase.COLLECTIVE) <= 1 - MOSTLY:
        seen = _no_step(report, lead, watch)
        report = report if seen is None else dataclasses.replace(report, verdict="unknown", unexplained=(seen,))
    report = _with_losses(report, watch.log, ignore)
    return dataclasses.replace(report, seconds={"total": watch.seconds + time.perf_counter() - began})


def _with_losses(report: Report, log: str, ignore: Iterable[str] = ()) -> Report:
    """The report, headed by the finding of a loss that is NaN or grows without end, if the output shows one."""
    if not log.strip():
        return report
    # the results are worthless, so other findings come after this one
    reading = intake.read_all([("output of the command", log.encode())])
    ill = diagnose(Evidence(source="process", reading=reading), ignore=ignore, finders=losses.FINDERS).findings
    if not ill:
        return report
    rest = tuple(one for one in report.findings if one.id not in {loss.id for loss in ill})
    return dataclasses.replace(report, verdict="broken", findings=(*ill, *rest), unexplained=())


def clear_cause(watch: Watch, ignore: Iterable[str] = ()) -> str:
    """The cause that a short watch shows beyond doubt; '' if there is none or nothing is wrong.

    It is never a hang, since a step may take longer than a short watch.
    """
    first = next(iter(judge(watch, ignore).findings), None)
    if first is None or first.severity == "info" or first.id == "job_hung":
        return ""
    return first.id if first.confidence >= CLEAR else ""


def _no_step(report: Report, lead: RankShares, watch: Watch) -> Observation | None:
    """The observation made instead of training steps; None if there were some."""
    if lead.share(Phase.STARTUP) >= MOSTLY:
        share = percent(lead.share(Phase.STARTUP))
        return Observation("start_up", f"{share} of the time was start-up: the job is not training yet", STACKS)
    if lead.share(*TRAINING, Phase.COLLECTIVE) > 0:
        return None
    phase = max(lead.phases, key=lambda each: lead.phases[each])
    moves = next((f"; {skip.because}" for skip in report.skipped if skip.id == "job_hung"), "")
    site = next(iter(lead.sites.get(phase, ())), None)
    where = "" if site is None else f", mostly at {place(site.frame, watch)}"
    text = f"no training step was seen: {phase.value} {percent(lead.share(phase))} of the time{where}{moves}"
    return Observation("no_training_step", text, STACKS)


def judge_end(watched: Report | None, end: CommandOutcome, ignore: Iterable[str] = ()) -> Report:
    """The report once the command has ended: the root cause of its failure if it failed, else the watch's report."""
    failed = bool(end.exit_code) or end.signal is not None
    if not failed or end.interrupted:
        seen = watched if watched is not None else _nothing_seen(end)
        if any(finding.id in _OF_LOSSES for finding in seen.findings):
            return seen
        return _with_losses(seen, end.log, ignore)
    texts = [("output of the command", end.log), ("end of the command", _SHELL_SAYS.get(end.signal or 0, ""))]
    inputs = [(name, text.encode()) for name, text in texts if text.strip()]
    if not inputs:
        return _nothing_seen(end)
    report = examine_text(inputs, Request(ignore=tuple(ignore)))
    return dataclasses.replace(report, source="process", seconds={"total": end.seconds})


def is_empty(report: Report) -> bool:
    """Whether the report says only that there was nothing to judge."""
    return not report.findings and [seen.fact for seen in report.unexplained] == [_END]


def _nothing_seen(end: CommandOutcome) -> Report:
    report = diagnose(Evidence(source="process"), finders=())
    how = f"signal {end.signal}" if end.signal is not None else f"exit code {end.exit_code}"
    what = (
        "before a training step was seen"
        if end.interrupted or not (end.exit_code or end.signal)
        else "and wrote nothing"
    )
    seen = Observation(_END, f"ended with {how} after {end.seconds:.1f} s, {what}", "its end")
    return dataclasses.replace(report, verdict="unknown", unexplained=(seen,), seconds={"total": end.seconds})
