"""The training loop as a stream of events. Between log points a step does nothing that waits for the device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.shortage import is_out_of_memory
from gpudoc.train.blame import in_data
from gpudoc.train.data.draws import Snapshot
from gpudoc.train.data.feed import DirectFeed, Feed
from gpudoc.train.data.order import Chunk
from gpudoc.train.events import Evaluated, Event, Progressed, Said, Started
from gpudoc.train.job import Job
from gpudoc.train.ranks.distributed import AbandonedError, UnusedError
from gpudoc.train.ranks.protocol import OOM, STOP
from gpudoc.train.step.boundary import Boundary
from gpudoc.train.step.crash import leave_smaller_batch, leave_unused
from gpudoc.train.step.guard import Moment
from gpudoc.train.step.meters import Split, memory_peak_bytes
from gpudoc.train.step.rescue import Rescuer
from gpudoc.train.step.sequence import READING, Driver, Missing, StepSequence, share_out
from gpudoc.train.step.step import Micro
from gpudoc.train.step.trace import Tracer
from gpudoc.workload.batch import Batch

# fp16 needs up to 17 skipped steps to find its first loss scale
_MOST_SKIPPED_IN_A_ROW = 25


class Loop(Driver):
    """Drives one job from its step to its end, or to a stop."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._sequence = StepSequence(job.stepper, job.rates, self)
        self._meter = job.stepper.meter
        self._feed: Feed | None = None
        self._chunks: list[Chunk] = []
        self._on_host = job.stepper.parts.device.type == "cpu"
        self._boundary = Boundary(job, self._meter)
        self._rescuer = Rescuer(job, self._sequence.undo)
        self._tracer = Tracer(job.run.path, job.trace_steps)
        self._samples_logged = job.order.samples_before(job.progress.step)
        self._skipped_in_a_row = 0
        self._skipped_logged = 0
        self._logged_step = job.progress.step
        self._total = Split(dict(job.progress.seconds)) if job.progress.seconds else None
        self.memory_peak_bytes = 0
        self._agreed_to_stop = False

    def events(self) -> Iterator[Event]:
        """Train, telling what happens; ends at the last step, at a stop, or raises with the state at a boundary."""
        job = self._job
        yield self._started()
        job.stepper.parts.model.train()
        self._meter.restart()
        try:
            while job.progress.step < job.end_step and not self._is_stopped():
                yield from self._step()
        except Exception:
            yield from self._save_what_there_is()
            raise
        finally:
            self._close_feed()
            self._tracer.close()
        yield from self._boundary.close()
        self._collect_split(self._meter.take())

    def _is_stopped(self) -> bool:
        """Whether all ranks know of a stop; one that was asked alone tells the others in the next vote."""
        return self._agreed_to_stop if self._job.ranks.world > 1 else self._job.stop.asked

    @property
    def last_evaluation(self) -> Evaluated | None:
        """The newest evaluation of this process."""
        return self._boundary.last_evaluation

    def _step(self) -> Iterator[Event]:
        """One step and what is due after it; a step that ran out of memory is undone and its rescue told."""
        job, progress, sequence = self._job, self._job.progress, self._sequence
        outcome = sequence.run(progress.step)
        if outcome.flags & STOP:
            self._agreed_to_stop = True
            job.stop.ask("another rank was asked to stop", ExitCode.RESUME)
            return
        if outcome.flags & OOM:
            self._close_feed()
            if self._boundary.give_way():
                sequence.undo.back()
                yield from self._boundary.tell()
            else:
                sequence.guard.restart()
                yield from self._rescuer.shrink(outcome.seen, outcome.told)
            return
        progress.step += 1
        for chunk in self._chunks:
            # numbers only, so the hash is the same in every process; a resumed run must read the same samples
            progress.samples_digest = hash((progress.samples_digest, chunk.indices))
        if self._tracer.wanted:
            yield from self._tracer.advance()
        if progress.step >= self._boundary.due_at or progress.step % job.settings.log_every == 0:
            yield from self._after(progress.step)

    def fetch(self) -> list[Micro] | Missing:
        """The step's micro batches on the host with their shares of the loss, or why any rank is without them."""
        job = self._job
        feed = self._open_feed(job.progress.step)
        self._chunks = job.order.chunks(job.progress.step)
        read: list[tuple[Batch, bool]] = []
        missing = None
        for chunk in self._chunks:
            taken = self._take(feed, chunk)
            if isinstance(taken, Missing):
                missing = taken
                read.clear()
                break
            read.append((taken, chunk.weightless))
        try:
            return share_out(job.stepper.parts, read, missing)
        except AbandonedError:
            leave_smaller_batch(job, READING)
            raise

    def is_stopping(self) -> bool:
        """Whether this rank was asked to stop."""
        return self._job.stop.asked

    def failed(self, problem: Exception, at: Moment, micros: Sequence[Micro]) -> int:
        """The flags to vote with after a failure that can be undone."""
        return self._rescuer.judge(problem, at, micros)

    def abandoned(self, problem: AbandonedError, seen: str) -> None:
        """Leave word for the ranks that are started after this one."""
        if isinstance(problem, UnusedError):
            leave_unused(self._job)
        else:
            leave_smaller_batch(self._job, seen)

    def snapshot(self) -> Snapshot | None:
        """The random state that the loader just took; it knows nothing of a GPU's."""
        return self._feed.snapshot if self._on_host and isinstance(self._feed, DirectFeed) else None

    def _take(self, feed: Feed, chunk: Chunk) -> Batch | Missing:
        """The chunk's batch; read once more when memory for it was missing beside a checkpoint."""
        try:
            batch = feed.take(chunk)
        except Exception as problem:
            told = in_data(problem, chunk.indices)
            if not is_out_of_memory(problem):
                raise told from problem
            short = Missing(OOM, f"{READING}, {len(chunk.indices)} at once", told.message)
        else:
            return Missing(STOP) if batch is None else batch
        if isinstance(feed, DirectFeed) and self._boundary.give_way():
            return self._take(feed, chunk)
        return short

    def _open_feed(self, step: int) -> Feed:
        """The loader at `step`. One set of workers serves all epochs, unless they are asked not to persist."""
        job, end = self._job, self._job.end_step
        if job.settings.num_workers and not job.settings.persistent_workers:
            epoch, first = divmod(step, job.order.steps_per_epoch)
            end = min(end, (epoch + 1) * job.order.steps_per_epoch)
            if first == 0:
                self._close_feed()
        if self._feed is None:
            self._feed = job.feeds.open(job.order, step, end)
        return self._feed

    def _after(self, step: int) -> Iterator[Event]:
        job = self._job
        if step % job.settings.log_every == 0 or step == job.end_step:
            yield self._log(step)
        yield from self._boundary.act(step)

    def _log(self, step: int) -> Progressed:
        job, stepper = self._job, self._job.stepper
        losses, grad_norm, split = self._sequence.read()
        finite = [loss for loss in losses if math.isfinite(loss)]
        loss = sum(finite) / len(finite) if finite else math.nan
        if finite:
            job.progress.final_loss = finite[-1]
            if job.progress.first_loss is None:
                job.progress.first_loss = finite[0]
        self._collect_split(split)
        samples = job.order.samples_before(step)
        skipped = stepper.num_skipped() - self._skipped_logged
        self._count_skipped(skipped, step - self._logged_step, step)
        record = Progressed(
            step=step,
            end_step=job.end_step,
            epoch=None if job.order.is_endless else samples / job.order.num_samples,
            samples=samples,
            loss=loss,
            lr=float(stepper.parts.optimizer.param_groups[0]["lr"]),
            samples_per_s=(samples - self._samples_logged) / split.wall_s if split.wall_s > 0 else 0.0,
            split=split,
            memory_peak_bytes=self.memory_peak_bytes,
            grad_norm=grad_norm,
            scale=stepper.scale(),
            num_skipped=skipped,
        )
        self._samples_logged, self._logged_step = samples, step
        job.sinks.add(record.document())
        job.stop.check_time(2 * job.writer.last_seconds + split.wall_s)
        return record

    def _count_skipped(self, skipped: int, steps: int, step: int) -> None:
        job = self._job
        self._skipped_logged += skipped
        job.progress.num_skipped += skipped
        self._skipped_in_a_row = self._skipped_in_a_row + skipped if skipped == steps else 0
        never = job.progress.num_skipped == step
        if self._skipped_in_a_row >= _MOST_SKIPPED_IN_A_ROW or (never and step == job.end_step):
            since = "from the first step on" if never else f"for {self._skipped_in_a_row} steps"
            raise GpudocError(
                f"the gradients are not finite {since} (step {step}): nothing is learned",
                hint="--set lr=SMALLER, --precision fp32, train.grad_clip in the config, or look for NaN in the data",
                exit_code=ExitCode.BAD_ANSWER,
            )

    def _collect_split(self, split: Split) -> None:
        self._total = split if self._total is None else self._total + split
        self._job.progress.seconds = dict(self._total.seconds)
        self.memory_peak_bytes = memory_peak_bytes(self._job.stepper.parts.device)

    def _close_feed(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def _save_what_there_is(self) -> Iterator[Event]:
        """After a failure: the state of the last boundary, unless an update was torn or saving fails as well."""
        job = self._job
        if job.stepper.is_updating or job.ranks.world > 1 or job.progress.step == 0:
            # a rank that failed cannot ask the others to save with it; the last checkpoint is where they go on
            job.writer.collect(wait=True)
            return
        try:
            self._sequence.undo.back()
            yield from self._boundary.close()
        except Exception as problem:
            # the error that ended the run is the one to tell; after some of them the device answers nothing any more
            yield Said(f"the last state could not be saved: {str(problem).splitlines()[0]}", warning=True)

    def _started(self) -> Started:
        job = self._job
        parts = job.stepper.parts
        return Started(
            name=job.workload.name,
            run_dir=job.run.path,
            device=str(parts.device),
            settings=job.settings,
            num_parameters=sum(p.numel() for p in parts.model.parameters()),
            num_samples=None if job.order.is_endless else job.order.num_samples,
            steps_per_epoch=None if job.order.is_endless else job.order.steps_per_epoch,
            step=job.progress.step,
            end_step=job.end_step,
            world=job.ranks.world,
            resumed_from=job.resumed_from,
        )


def note_of_syncs(job: Job) -> list[Said]:
    """What is said at the start when the optimizer cannot skip a bad step on the device."""
    if not job.stepper.syncs_every_step:
        return []
    name = type(job.stepper.parts.optimizer).__name__
    return [Said(f"{name} has no fused form here: every step waits once for the device to see whether it was finite")]
