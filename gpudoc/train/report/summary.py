"""summary.json: the result of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from gpudoc.errors import ExitCode
from gpudoc.train.document import EvaluatedLoss, RunSummary, StageRow
from gpudoc.train.events import Evaluated
from gpudoc.train.job import Job
from gpudoc.train.meter.meters import Split
from gpudoc.train.report.advice import RunAdvice
from gpudoc.train.report.sinks import finite


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingEnd:
    """How the run ended, and its last figures."""

    status: str
    reason: str
    exit_code: ExitCode
    seconds: float
    memory_peak_bytes: int
    evaluation: Evaluated | None
    verdict: str
    advice: list[RunAdvice]
    go_on: str | None


def document(job: Job, end: TrainingEnd) -> RunSummary:
    """The summary of a run as plain data."""
    progress, course = job.course.progress, job.course
    split = Split.of(progress.seconds)
    # an early stop ends a run before its requested steps
    settings = replace(job.settings, steps=course.end_step)
    samples = course.order.samples_before(progress.step)
    found: RunSummary = {
        "schema": "gpudoc.train.v1",
        "status": end.status,
        "reason": end.reason,
        "exit_code": int(end.exit_code),
        "name": job.workload.name,
        "run_dir": str(job.run.path),
        "device": str(job.stepper.parts.device),
        "world": job.stepper.parts.ranks.world,
        "steps": progress.step,
        "end_step": course.end_step,
        "samples": samples,
        "first_loss": progress.first_loss,
        "final_loss": progress.final_loss,
        "evaluation": _evaluation(end.evaluation),
        "best": None if progress.best_step is None else {"step": progress.best_step, "loss": progress.best_loss},
        "samples_per_s": samples / split.wall_s if split.wall_s > 0 else None,
        "seconds": dict(split.seconds),
        "share": {phase: round(split.share(phase), 4) for phase in split.seconds},
        "use": job.loop.used,
        "memory_peak_bytes": end.memory_peak_bytes,
        "memory": job.census.document(),
        "compilations": job.stepper.meter.compilations.document(),
        "num_skipped": progress.num_skipped,
        "rescues": progress.rescues,
        "hangs": job.hangs,
        "ranks": job.loop.pace.document(),
        "resumed_from": job.origin.resumed_from,
        "settings": {key: {"value": value, "from": source} for key, value, source in settings.rows()},
        "stages": [*job.origin.stages, *_own_stages(job, end, split)],
        "verdict": end.verdict,
        "advice": [advice.document() for advice in end.advice],
        "go_on": end.go_on,
    }
    return cast(RunSummary, finite(found))


def _evaluation(evaluation: Evaluated | None) -> EvaluatedLoss | None:
    if evaluation is None:
        return None
    found: EvaluatedLoss = {"step": evaluation.step, "loss": evaluation.loss}
    found.update(evaluation.figures)  # type: ignore[typeddict-item]
    return found


def _own_stages(job: Job, end: TrainingEnd, split: Split) -> list[StageRow]:
    device = str(job.stepper.parts.device)
    evaluate_s = split.seconds["evaluate"]
    train: StageRow = {
        "name": "train",
        "status": end.status,
        "seconds": round(end.seconds - evaluate_s, 3),
        "device": device,
        "memory_peak_bytes": end.memory_peak_bytes,
    }
    is_done = end.evaluation is not None
    evaluate: StageRow = {
        "name": "evaluate",
        "status": "done" if is_done else "skipped",
        "seconds": round(evaluate_s, 3),
        "device": device,
        "memory_peak_bytes": end.memory_peak_bytes if is_done else None,
    }
    if job.workload.config.data.eval is None:
        evaluate["because"] = "the config names no eval set"
    return [train, evaluate]
