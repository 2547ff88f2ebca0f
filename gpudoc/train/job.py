"""A run with everything built: its loop, and the facts for its reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpudoc.train.document import StageRow
from gpudoc.train.events import Started
from gpudoc.train.loop.census import Census
from gpudoc.train.loop.course import Course
from gpudoc.train.loop.loop import Loop
from gpudoc.train.report.sinks import Sinks
from gpudoc.train.settings import TrainSettings
from gpudoc.train.state.run_dir import Run
from gpudoc.train.step.step import Stepper
from gpudoc.train.stop import Stop
from gpudoc.workload.build import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a run comes from: the kind of its profile, the checkpoint to continue from, the stages before training."""

    profile_kind: str
    resumed_from: str | None
    stages: tuple[StageRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run on one rank."""

    workload: Workload
    settings: TrainSettings
    run: Run
    origin: Origin
    course: Course
    stepper: Stepper
    census: Census
    loop: Loop
    sinks: Sinks
    stop: Stop
    hangs: list[Mapping[str, object]] = field(default_factory=list)

    def started(self) -> Started:
        """The event before the first step."""
        parts, course = self.stepper.parts, self.course
        order = course.order
        return Started(
            name=self.workload.name,
            run_dir=self.run.path,
            device=str(parts.device),
            settings=self.settings,
            num_parameters=sum(p.numel() for p in parts.model.parameters()),
            num_samples=None if order.is_endless else order.num_samples,
            steps_per_epoch=None if order.is_endless else order.steps_per_epoch,
            step=course.progress.step,
            end_step=course.end_step,
            world=parts.ranks.world,
            resumed_from=self.origin.resumed_from,
        )
