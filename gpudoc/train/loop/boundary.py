"""Evaluation and checkpoints, run between two steps when they are due."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.train.events import Evaluated, Event
from gpudoc.train.loop.evaluation import Evaluation
from gpudoc.train.loop.saving import Saving
from gpudoc.train.meter.meters import clock


class Boundary:
    """Acts at step boundaries, each time after a number of steps. `due_at` is the next step with anything to do."""

    def __init__(
        self, saving: Saving, evaluation: Evaluation | None, *, checkpoint_every: int, eval_every: int
    ) -> None:
        self.saving = saving
        self._evaluation = evaluation
        self._checkpoint_every = checkpoint_every
        self._eval_every = eval_every
        self._course = saving.course
        self._meter = saving.stepper.meter
        self.due_at = 0
        self._plan(self._course.progress.step)

    @property
    def last_evaluation(self) -> Evaluated | None:
        """The newest evaluation of this process."""
        return None if self._evaluation is None else self._evaluation.last

    def act(self, step: int) -> Iterator[Event]:
        """Run everything that is due after `step`."""
        saving = self.saving
        yield from saving.collect()
        yield from saving.tell()
        gained = False
        if step >= self.due_at:
            saving.stepper.free_gradients()
        if self._evaluation is not None and self._is_due(step, self._eval_every):
            began = clock()
            yield from self._evaluation.run(step)
            self._meter.evaluate += clock() - began
            gained = self._course.progress.best_step == step
        if gained or saving.waits or (self._checkpoint_every and step % self._checkpoint_every == 0):
            began = clock()
            if gained:
                # exactly these weights are the best: the next step changes them
                yield from saving.collect(wait=True)
            saving.save()
            self._meter.checkpoint += clock() - began
            yield from saving.tell()
        self._plan(step)

    def close(self) -> Iterator[Event]:
        """Save the last state; GpudocError if it cannot be written."""
        began = clock()
        yield from self.saving.close()
        self._meter.checkpoint += clock() - began

    def _plan(self, step: int) -> None:
        every = [self._checkpoint_every, self._eval_every if self._evaluation is not None else 0]
        due = [(step // period + 1) * period for period in every if period]
        self.due_at = step + 1 if self.saving.waits else min([*due, self._course.end_step])

    def _is_due(self, step: int, every: int) -> bool:
        return step == self._course.end_step or (every > 0 and step % every == 0)
