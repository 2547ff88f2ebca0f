"""The end of a run: verdict, advice, summary.json, and the last event."""

from __future__ import annotations

from gpudoc.control_characters import to_json
from gpudoc.doctor.spinning import crowd_here, find_spinning
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.host import num_cpus
from gpudoc.process.cpu_load import CpuLoad
from gpudoc.train.data.stream import most_workers
from gpudoc.train.events import Finished
from gpudoc.train.job import Job
from gpudoc.train.meter.meters import Split
from gpudoc.train.report.advice import RunSituation, about_slow, advise, verdict
from gpudoc.train.report.summary import TrainingEnd, document
from gpudoc.train.request import TrainRequest, go_on
from gpudoc.train.state.checkpoint import found_in
from gpudoc.train.state.run_dir import write_whole


def finish(
    request: TrainRequest, job: Job, problem: Exception | None, seconds: float, beside: CpuLoad | None = None
) -> Finished:
    """Write summary.json and return the last event; `beside` is other processes' use of the CPUs."""

    import torch

    status, reason, exit_code = _end_of(job, problem)
    split = Split.of(job.course.progress.seconds)
    situation = RunSituation(
        settings=job.settings,
        model=request.model,
        device_type=job.stepper.parts.device.type,
        num_cpus=num_cpus(),
        profile_kind=job.origin.profile_kind,
        most_workers=most_workers(job.workload),
        spinning=None if beside is None else find_spinning(crowd_here(beside.other_cpus, torch.get_num_threads())),
        recompiled=job.stepper.meter.compilations.worst(),
    )
    saved = bool(found_in(job.run.checkpoints))
    command = go_on(request, job.run.path) if status != "finished" and saved else None
    end = TrainingEnd(
        status=status,
        reason=reason,
        exit_code=exit_code,
        seconds=seconds,
        memory_peak_bytes=job.loop.memory_peak_bytes,
        evaluation=job.loop.last_evaluation,
        verdict=verdict(split),
        advice=[*about_slow(job.loop.pace.slow), *advise(split, situation)],
        go_on=command,
    )
    summary = document(job, end)
    if job.stepper.parts.ranks.rank == 0:
        try:
            write_whole(job.run.summary, to_json(summary, indent=1) + "\n")
        except GpudocError:
            # a disk that is full for the summary was also full for the checkpoint, whose error is reported
            if problem is None:
                raise
    return Finished(summary=summary, exit_code=exit_code, reason=reason, go_on=command)


def _end_of(job: Job, problem: Exception | None) -> tuple[str, str, ExitCode]:
    if problem is not None:
        code = problem.exit_code if isinstance(problem, GpudocError) else ExitCode.BAD_ANSWER
        return "failed", str(problem), code
    if job.stop.asked and job.course.progress.step < job.course.end_step:
        return "stopped", job.stop.reason, job.stop.exit_code
    return "finished", "", ExitCode.OK
