"""An evaluation between two steps: its loss, whether it is the best so far, and whether training ends early."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.train.data.feed import Feeds
from gpudoc.train.data.order import Order
from gpudoc.train.events import Evaluated, Event, Rescued, Said
from gpudoc.train.loop.course import Rescues
from gpudoc.train.loop.crash import Restart, leave_smaller_batch
from gpudoc.train.loop.evaluate import TooLarge, evaluate
from gpudoc.train.meter.meters import clock
from gpudoc.train.ranks.distributed import AbandonedError
from gpudoc.train.step.step import Parts
from gpudoc.train.stop import Stop
from gpudoc.workload.build import Dataset, ReportsEvaluation


@dataclass(kw_only=True)
class Evaluation:
    """Evaluates on the eval set. `patience` evaluations without improvement end the run; 0: never."""

    parts: Parts
    feeds: Feeds
    dataset: Dataset
    rescues: Rescues
    restart: Restart
    stop: Stop
    patience: int = 0
    last: Evaluated | None = field(default=None, init=False)

    def run(self, step: int) -> Iterator[Event]:
        """Run the evaluation after `step`; GpudocError if not even one sample fits."""
        course = self.rescues.course
        progress, ranks = course.progress, self.parts.ranks
        began = clock()
        count = len(self.dataset)  # type: ignore[arg-type]
        batch = min(progress.eval_batch or course.order.micro_batch, count)
        order = Order(
            num_samples=count,
            global_batch=batch * ranks.world,
            micro_batch=batch,
            seed=course.order.seed,
            rank=ranks.rank,
            world=ranks.world,
            shuffled=False,
        )
        ranks.align_buffers(self.parts.model)
        try:
            outcome = evaluate(self.parts, self.feeds, order, self.stop)
        except AbandonedError as problem:
            progress.eval_batch = batch
            leave_smaller_batch(self.restart, f"{problem.__cause__}"[:200], "evaluate")
            raise
        except TooLarge as problem:
            raise GpudocError(
                f"out of memory in evaluation with one sample: {problem}",
                hint="gpudoc tune shows what fits; use shorter or smaller eval samples, or a higher --memory-limit",
                exit_code=ExitCode.BAD_ANSWER,
            ) from None
        for before, after, shapes in outcome.shrunk:
            rescued = Rescued(step=step, from_batch=before, to_batch=after, phase="evaluate", shapes=shapes)
            progress.eval_batch = outcome.micro_batch
            yield from self.rescues.record(rescued)
        if outcome.loss is None:
            yield Said(f"evaluation after step {step} was skipped because of the stop")
            return
        yield from self._judge(step, outcome.loss, count, clock() - began)

    def _judge(self, step: int, loss: float, count: int, seconds: float) -> Iterator[Event]:
        course, progress = self.rescues.course, self.rescues.course.progress
        best = math.isfinite(loss) and (progress.best_loss is None or loss < progress.best_loss)
        if best:
            progress.best_loss, progress.best_step = loss, step
            progress.evaluations_without_gain = 0
        else:
            progress.evaluations_without_gain += 1
        reports = isinstance(self.dataset, ReportsEvaluation)
        figures: Mapping[str, float] = self.dataset.report(loss) if reports else {}  # type: ignore[attr-defined]
        self.last = Evaluated(step=step, loss=loss, figures=figures, num_samples=count, seconds=seconds, best=best)
        self.rescues.metrics.add(self.last.document())
        yield self.last
        if self.patience and progress.evaluations_without_gain >= self.patience and step < course.end_step:
            course.end_step = step
            gain = "none was finite"
            if progress.best_loss is not None:
                gain = f"the best was {progress.best_loss:.4g} at step {progress.best_step}"
            yield Said(f"early stop after step {step}: {self.patience} evaluations without improvement; {gain}")
