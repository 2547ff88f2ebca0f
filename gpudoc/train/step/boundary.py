"""What happens between two steps when it is due: evaluation, checkpoints, early stop."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.memory import room_bytes
from gpudoc.process.shortage import is_out_of_memory
from gpudoc.train.data.order import Order
from gpudoc.train.events import Evaluated, Event, Rescued, Said, Saved
from gpudoc.train.job import Job
from gpudoc.train.ranks.distributed import AbandonedError
from gpudoc.train.ranks.protocol import BUSY
from gpudoc.train.state.capture import capture, copied_bytes, rng_document
from gpudoc.train.state.checkpoint import Content, found_in
from gpudoc.train.step.crash import leave_smaller_batch
from gpudoc.train.step.evaluate import TooLarge, evaluate
from gpudoc.train.step.meters import Meter, clock
from gpudoc.train.step.rescue import free_memory
from gpudoc.units import MIB
from gpudoc.workload.build import ReportsEvaluation

# a thread's stack of 8 MiB, and what writing takes besides (1.2 MiB, 2026-11-21), with room
_WRITER_BYTES = 16 * MIB
NO_ROOM = "no memory to write a checkpoint beside the steps: from now on they wait until it is written"


class Boundary:
    """Acts at step boundaries. `due_at` is the next step at which anything must be done."""

    def __init__(self, job: Job, meter: Meter) -> None:
        self._job = job
        self._meter = meter
        self._save_waits = False
        self._in_turn = False
        self._beside = False
        self._untold = False
        self._good = [step for step, _ in found_in(job.writer.folder)]
        self._saved_step = job.progress.step if job.resumed_from is not None else -1
        self.last_evaluation: Evaluated | None = None
        self.due_at = 0
        self._plan(job.progress.step)

    def act(self, step: int) -> Iterator[Event]:
        """Do what is due after `step`."""
        job, settings = self._job, self._job.settings
        yield from self._collect(wait=False)
        yield from self.tell()
        gained = False
        if step >= self.due_at:
            job.stepper.free_gradients()
        if job.eval_feeds is not None and self._is_due(step, settings.eval_every):
            began = clock()
            yield from self._evaluate(step)
            self._meter.evaluate += clock() - began
            gained = job.progress.best_step == step
        if gained or self._save_waits or (settings.checkpoint_every and step % settings.checkpoint_every == 0):
            began = clock()
            if gained:
                # these very weights are the best: a step later they are others
                yield from self._collect(wait=True)
            self._save_waits = not self._save()
            self._meter.checkpoint += clock() - began
            yield from self.tell()
        self._plan(step)

    def close(self) -> Iterator[Event]:
        """Save the last state and wait until it is on disk; GpudocError when it cannot be written."""
        began = clock()
        if self._saved_step != self._job.progress.step or self._job.writer.busy:
            yield from self._collect(wait=True)
        for _ in range(2):
            # the second time without a copy, where the first one had no memory for it
            if self._is_unsaved():
                self._save()
                yield from self._collect(wait=True, final=True)
        self._meter.checkpoint += clock() - began

    def give_way(self) -> bool:
        """Wait for the checkpoint that takes memory beside the steps, and write later ones between them.

        False when none is being written, so that the memory must be found elsewhere.
        """
        if self._job.ranks.world > 1 or self._in_turn or not self._job.writer.busy:
            return False
        self._job.writer.settle()
        self._write_in_turn()
        return True

    def tell(self) -> Iterator[Said]:
        """That steps wait for checkpoints from now on, once."""
        if self._untold:
            self._untold = False
            yield Said(NO_ROOM)

    def _write_in_turn(self) -> None:
        self._in_turn = self._job.staging.in_place = self._untold = True
        free_memory(self._job.stepper.parts.device)

    def _is_unsaved(self) -> bool:
        """Whether any rank knows of no checkpoint of this step: only the one that writes hears that writing failed."""
        return any(self._job.ranks.gather(self._saved_step != self._job.progress.step))

    def _plan(self, step: int) -> None:
        settings = self._job.settings
        every = [settings.checkpoint_every, settings.eval_every if self._job.eval_feeds else 0]
        due = [(step // period + 1) * period for period in every if period]
        self.due_at = step + 1 if self._save_waits else min([*due, self._job.end_step])

    def _is_due(self, step: int, every: int) -> bool:
        return step == self._job.end_step or (every > 0 and step % every == 0)

    def _evaluate(self, step: int) -> Iterator[Event]:
        job, progress = self._job, self._job.progress
        assert job.eval_feeds is not None
        began = clock()
        count = len(job.workload.eval_dataset)  # type: ignore[arg-type]
        batch = min(progress.eval_batch or job.order.micro_batch, count)
        order = Order(
            num_samples=count,
            global_batch=batch * job.ranks.world,
            micro_batch=batch,
            seed=job.order.seed,
            rank=job.ranks.rank,
            world=job.ranks.world,
            shuffled=False,
        )
        job.ranks.align_buffers(job.stepper.parts.model)
        try:
            outcome = evaluate(job.stepper.parts, job.eval_feeds, order, job.stop)
        except AbandonedError as problem:
            progress.eval_batch = batch
            leave_smaller_batch(job, f"{problem.__cause__}"[:200], "evaluate")
            raise
        except TooLarge as problem:
            raise GpudocError(
                f"out of memory in evaluation with one sample: {problem}",
                hint="gpudoc tune shows what fits; shorter or smaller eval samples, or --memory-limit higher",
                exit_code=ExitCode.BAD_ANSWER,
            ) from None
        for before, after, shapes in outcome.shrunk:
            rescued = Rescued(step=step, from_batch=before, to_batch=after, phase="evaluate", shapes=shapes)
            progress.rescues.append(rescued.document())
            progress.eval_batch = outcome.micro_batch
            job.sinks.add(rescued.document())
            yield rescued
        if outcome.loss is None:
            yield Said(f"evaluation after step {step} was left for the stop")
            return
        yield from self._judge(step, outcome.loss, count, clock() - began)

    def _judge(self, step: int, loss: float, count: int, seconds: float) -> Iterator[Event]:
        job, progress = self._job, self._job.progress
        best = math.isfinite(loss) and (progress.best_loss is None or loss < progress.best_loss)
        if best:
            progress.best_loss, progress.best_step = loss, step
            progress.evaluations_without_gain = 0
        else:
            progress.evaluations_without_gain += 1
        dataset = job.workload.eval_dataset
        figures: Mapping[str, float] = dataset.report(loss) if isinstance(dataset, ReportsEvaluation) else {}
        found = Evaluated(step=step, loss=loss, figures=figures, num_samples=count, seconds=seconds, best=best)
        self.last_evaluation = found
        job.sinks.add(found.document())
        yield found
        patience = job.settings.early_stop
        if patience and progress.evaluations_without_gain >= patience and step < job.end_step:
            job.settings = replace(job.settings, steps=step)
            gain = "none was finite"
            if progress.best_loss is not None:
                gain = f"the best was {progress.best_loss:.4g} at step {progress.best_step}"
            yield Said(f"early stop after step {step}: {patience} evaluations without gain; {gain}")

    def _save(self) -> bool:
        """Begin a checkpoint of this boundary; False when the last one is still being written."""
        job = self._job
        busy = BUSY if job.writer.busy else 0
        if job.ranks.vote(busy):
            return False
        if not self._in_turn and self._lacks_room():
            self._write_in_turn()
        job.ranks.align_buffers(job.stepper.parts.model)
        job.progress.samples = job.order.samples_before(job.progress.step)
        job.progress.micro_batch = job.order.micro_batch
        states = job.ranks.gather(rng_document(job.generators.snapshot()))
        if job.ranks.rank == 0 or job.ranks.is_sharded:
            # gathering full weights costs time and memory: only where somebody will want them in one file
            wanted = job.progress.step in (job.progress.best_step, job.end_step)
            content = self._capture(dict(enumerate(states)), wanted)
            content = replace(content, place=job.feeds.place())
            best = job.progress.best_step
            keep = [step for step in self._good if step != job.progress.step][: job.settings.keep - 1]
            self._beside = not self._in_turn
            # in turn what is written is no copy: the next step would change it
            job.writer.start(content, tuple(keep if best is None else {*keep, best}), beside=self._beside)
        self._saved_step = job.progress.step
        return True

    def _lacks_room(self) -> bool:
        """Whether a copy of the state would not fit under this process's limit beside the highest step so far."""
        parts = self._job.stepper.parts
        if parts.device.type != "cpu" or parts.ranks.is_sharded:
            return False
        room = room_bytes()
        return room is not None and room < copied_bytes(parts.model, parts.optimizer) + _WRITER_BYTES

    def _capture(self, random: Mapping[int, Mapping[str, object]], wanted: bool) -> Content:
        job = self._job
        try:
            return capture(job.stepper, job.progress, job.constants, random, job.staging, whole=wanted)
        except Exception as problem:
            # sharded ranks capture together, so one cannot do it again
            if not is_out_of_memory(problem) or job.ranks.is_sharded:
                raise
        self._write_in_turn()
        return capture(job.stepper, job.progress, job.constants, random, job.staging, whole=wanted)

    def _collect(self, *, wait: bool, final: bool = False) -> Iterator[Event]:
        found = self._job.writer.collect(wait=wait)
        match found:
            case Saved():
                self._good = [step for step, _ in found_in(self._job.writer.folder)]
                yield found
            case OSError():
                self._saved_step = -1
                if self._beside and not self._job.ranks.is_sharded and is_out_of_memory(found):
                    if not self._in_turn:
                        self._write_in_turn()
                    yield from self.tell()
                    self._save_waits = True
                    return
                reason = found.strerror or str(found)
                message = f"a checkpoint could not be written: {reason}"
                if final:
                    earlier = f"the newest whole one is step-{self._good[0]}" if self._good else "there is none"
                    raise GpudocError(
                        f"{self._job.writer.folder}: the last {message[2:]}; {earlier}",
                        hint="make room, then run the same command again",
                        exit_code=ExitCode.BAD_ANSWER,
                    )
                yield Said(f"{message}; training goes on, earlier checkpoints stay", warning=True)
            case None:
                pass
