"""The course of a run: its progress, the division of samples into micro batches, and its last step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from gpudoc.errors import GpudocError
from gpudoc.policy import Policy
from gpudoc.profile.model import Rescue
from gpudoc.train.data.order import Order
from gpudoc.train.events import Event, Rescued, Said
from gpudoc.train.state.capture import RunProgress


@dataclass(kw_only=True)
class Course:
    """Changes with every step, with a rescue and with an early stop. `end_step` is the total of optimizer steps."""

    order: Order
    progress: RunProgress
    end_step: int

    def take_micro_batch(self, size: int) -> None:
        """Divide the same global batch into micro batches of `size` from the next step on."""
        self.order = self.order.with_micro_batch(size)
        self.progress.micro_batch = size


class Metrics(Protocol):
    """The writer of metrics.jsonl."""

    def add(self, document: Mapping[str, object]) -> None:
        """Write one row."""


class Lesson(Protocol):
    """Passes a rescue on to the next run."""

    def remember(self, rescue: Rescue, accumulation: int, recomputes: Policy) -> None:
        """Begin the next run with the rescue's micro batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescues:
    """Records rescues. `lesson` is None on every rank except the first."""

    course: Course
    metrics: Metrics
    lesson: Lesson | None = None

    def record(self, event: Rescued) -> Iterator[Event]:
        """Write the rescue into the checkpoint's state and metrics.jsonl, and save one in training for the next run.

        Then report it. A full disk does not end training: the next run then needs the same rescue.
        """
        progress, order = self.course.progress, self.course.order
        progress.rescues.append(event.document())
        self.metrics.add(event.document())
        if event.phase == "train" and self.lesson is not None:
            rescue = Rescue(step=event.step, from_batch=event.from_batch, to_batch=event.to_batch, shapes=event.shapes)
            accumulation = -(-order.global_batch // (event.to_batch * order.world))
            try:
                self.lesson.remember(rescue, accumulation, progress.activation_checkpointing)
            except GpudocError as problem:
                yield event
                yield Said(f"the smaller batch could not be saved for the next run: {problem.message}", warning=True)
                return
        yield event
