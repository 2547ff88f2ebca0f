"""The training loop as a stream of events, and its source of samples: a loader that is reopened to repeat a step.

Between log points a step never waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpudoc.errors import ExitCode
from gpudoc.process.memory import lift_limit
from gpudoc.process.shortage import is_out_of_memory
from gpudoc.train.blame import in_data
from gpudoc.train.data.draws import Snapshot
from gpudoc.train.data.feed import Feed, Feeds
from gpudoc.train.data.order import Chunk
from gpudoc.train.data.reader import DirectFeed
from gpudoc.train.events import Evaluated, Event, Said
from gpudoc.train.loop.boundary import Boundary
from gpudoc.train.loop.crash import Restart, leave_smaller_batch, leave_unused
from gpudoc.train.loop.log import Log
from gpudoc.train.loop.rescue import Rescuer
from gpudoc.train.loop.trace import Tracer
from gpudoc.train.ranks.distributed import AbandonedError, UnusedError
from gpudoc.train.ranks.pace import RankPace
from gpudoc.train.ranks.protocol import OOM, STOP
from gpudoc.train.step.schedule import Rates
from gpudoc.train.step.sequence import READING, Missing, Moment, Outcome, StepDriver, StepSequence, share_out
from gpudoc.train.step.step import Micro, Parts, Stepper
from gpudoc.train.stop import Stop
from gpudoc.workload.batch import Batch


class Fetcher:
    """Reads one step after another. `give_way` frees the memory of a checkpoint and says whether there was one."""

    def __init__(
        self, parts: Parts, feeds: Feeds, restart: Restart, give_way: Callable[[], bool], *, persistent: bool
    ) -> None:
        self._parts = parts
        self._on_host = parts.device.type == "cpu"
        self._feeds = feeds
        self._restart = restart
        self._give_way = give_way
        self._begins_anew = feeds.settings.num_workers > 0 and not persistent
        self._feed: Feed | None = None
        self.chunks: list[Chunk] = []

    def fetch(self) -> list[Micro] | Missing:
        """The next step's micro batches on the host with their shares of the loss, or why some rank has none."""
        course = self._restart.course
        feed = self._open()
        self.chunks = course.order.chunks(course.progress.step)
        read: list[tuple[Batch, bool]] = []
        missing = None
        for chunk in self.chunks:
            taken = self._take(feed, chunk)
            if isinstance(taken, Missing):
                missing = taken
                read.clear()
                break
            read.append((taken, chunk.weightless))
        try:
            return share_out(self._parts, read, missing)
        except AbandonedError:
            leave_smaller_batch(self._restart, READING)
            raise

    def snapshot(self) -> Snapshot | None:
        """The random state that the loader just took, None on a GPU: the loader does not know a GPU's state."""
        return self._feed.snapshot if self._on_host and isinstance(self._feed, DirectFeed) else None

    def close(self) -> None:
        """End the loader; the next step opens another."""
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def _take(self, feed: Feed, chunk: Chunk) -> Batch | Missing:
        """The chunk's batch; reads it once more if a checkpoint left no memory for it."""
        try:
            batch = feed.take(chunk)
        except Exception as problem:
            told = in_data(problem, chunk.indices)
            if not is_out_of_memory(problem):
                raise told from problem
            short = Missing(OOM, f"{READING}, {len(chunk.indices)} at once", told.message)
        else:
            return Missing(STOP) if batch is None else batch
        if isinstance(feed, DirectFeed) and self._give_way():
            return self._take(feed, chunk)
        return short

    def _open(self) -> Feed:
        """The loader at the next step. One set of workers serves all epochs, unless they must not persist."""
        course = self._restart.course
        step, end = course.progress.step, course.end_step
        if self._begins_anew:
            epoch, first = divmod(step, course.order.steps_per_epoch)
            end = min(end, (epoch + 1) * course.order.steps_per_epoch)
            if first == 0:
                self.close()
        if self._feed is None:
            self._feed = self._feeds.open(course.order, step, end)
        return self._feed


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopParts:
    """The objects that the loop uses, besides the step itself."""

    fetcher: Fetcher
    rescuer: Rescuer
    boundary: Boundary
    log: Log
    tracer: Tracer
    stop: Stop
    restart: Restart


class Loop(StepDriver):
    """Drives a run from its current step to its end, or to a stop."""

    def __init__(self, stepper: Stepper, rates: Rates, parts: LoopParts, log_every: int) -> None:
        self._parts = parts
        self._course = parts.restart.course
        self._sequence = StepSequence(stepper, rates, self)
        self._log_every = log_every
        self._is_alone = stepper.parts.ranks.world == 1
        self._agreed_to_stop = False

    def events(self) -> Iterator[Event]:
        """Train and yield events; ends at the last step, at a stop, or raises with the state at a step boundary."""
        parts, sequence, progress = self._parts, self._sequence, self._course.progress
        sequence.stepper.parts.model.train()
        sequence.meter.restart()
        try:
            while progress.step < self._course.end_step and not self._is_stopped():
                outcome = sequence.run(progress.step)
                if outcome.flags:
                    yield from self._undone(outcome)
                elif self._count():
                    yield from self._after(progress.step)
        except Exception:
            yield from self._save_what_there_is()
            raise
        finally:
            parts.fetcher.close()
            parts.tracer.close()
        yield from parts.boundary.close()
        parts.log.end(sequence.meter.take())

    @property
    def last_evaluation(self) -> Evaluated | None:
        """The newest evaluation of this process."""
        return self._parts.boundary.last_evaluation

    @property
    def used(self) -> dict[str, float | str | None]:
        """Tokens/s, TFLOP/s of the model and shares of the device's peak over the whole run; None if unknown."""
        return self._parts.log.used()

    @property
    def pace(self) -> RankPace:
        """How the ranks' own parts of a step compare."""
        return self._parts.log.pace

    @property
    def memory_peak_bytes(self) -> int:
        """The most memory held so far, as of the last log point."""
        return self._parts.log.memory_peak_bytes

    def fetch(self) -> list[Micro] | Missing:
        """The micro batches of the next step, on the host."""
        return self._parts.fetcher.fetch()

    def snapshot(self) -> Snapshot | None:
        """The random state of this moment if the loader took it, else None."""
        return self._parts.fetcher.snapshot()

    def is_stopping(self) -> bool:
        """Whether this rank was asked to stop."""
        return self._parts.stop.asked

    def failed(self, problem: Exception, at: Moment, micros: Sequence[Micro]) -> int:
        """The flags to vote with after a failure that can be undone."""
        return self._parts.rescuer.judge(problem, at, micros)

    def abandoned(self, problem: AbandonedError, seen: str) -> None:
        """Leave a message for the ranks that are started after this one."""
        if isinstance(problem, UnusedError):
            leave_unused(self._parts.restart)
        else:
            leave_smaller_batch(self._parts.restart, seen)

    def _is_stopped(self) -> bool:
        """Whether all ranks know of a stop; a rank that alone received it informs the others in the next vote."""
        return self._parts.stop.asked if self._is_alone else self._agreed_to_stop

    def _undone(self, outcome: Outcome) -> Iterator[Event]:
        """Stop, or make room for the step and say so, after a step without an update."""
        parts, sequence = self._parts, self._sequence
        if outcome.flags & STOP:
            self._agreed_to_stop = True
            parts.stop.ask("another rank was asked to stop", ExitCode.RESUME)
            return
        parts.fetcher.close()
        gave_way = parts.boundary.saving.give_way()
        sequence.undo.back()
        if gave_way:
            yield from parts.boundary.saving.tell()
        else:
            sequence.guard.restart()
            yield from parts.rescuer.shrink(outcome.seen, outcome.told)
            # the step may recompute activations from now on
            sequence.stepper.count()

    def _count(self) -> bool:
        """Count a finished step; returns whether anything is due after it."""
        parts, progress = self._parts, self._course.progress
        progress.step = step = progress.step + 1
        for chunk in parts.fetcher.chunks:
            # numbers only, so the hash is the same in every process; a resumed run must read the same samples
            progress.samples_digest = hash((progress.samples_digest, chunk.indices))
        return step % self._log_every == 0 or step >= parts.boundary.due_at or parts.tracer.wanted

    def _after(self, step: int) -> Iterator[Event]:
        parts = self._parts
        if parts.tracer.wanted:
            yield from parts.tracer.advance()
        if step % self._log_every == 0 or step == self._course.end_step:
            yield parts.log.write(step, self._sequence.read())
            waits = self._sequence.stepper.waits
            yield from [] if waits is None else waits.notes()
        if step >= parts.boundary.due_at or parts.boundary.saving.writer.busy:
            yield from parts.boundary.act(step)

    def _save_what_there_is(self) -> Iterator[Event]:
        """Save the last boundary's state after a failure, unless an update was torn or saving fails as well."""
        stepper, boundary = self._sequence.stepper, self._parts.boundary
        # the writer of a checkpoint ends the process if it gets no memory
        lift_limit()
        if stepper.is_updating or stepper.parts.ranks.world > 1 or self._course.progress.step == 0:
            # a failed rank cannot ask the others to save with it; they continue from the last checkpoint
            boundary.saving.writer.collect(wait=True)
            return
        try:
            self._sequence.undo.back()
            yield from boundary.close()
        except Exception as problem:
            # report the error that ended the run; after some errors the device no longer answers
            yield Said(f"the last state could not be saved: {str(problem).splitlines()[0]}", warning=True)


def note_of_syncs(stepper: Stepper) -> list[Said]:
    """The messages at the start if the optimizer cannot skip a bad step on the device."""
    if not stepper.syncs_every_step:
        return []
    name = type(stepper.parts.optimizer).__name__
    return [
        Said(f"{name} has no fused version here, so every step waits for the device once to check that it was finite")
    ]
