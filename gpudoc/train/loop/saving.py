"""Checkpoints during a run: when to capture one, whether steps wait for it, and the messages about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.memory import room_bytes
from gpudoc.process.shortage import is_out_of_memory
from gpudoc.train.data.draws import Generators
from gpudoc.train.events import Event, Said, Saved
from gpudoc.train.loop.course import Course
from gpudoc.train.loop.rescue import free_memory
from gpudoc.train.ranks.protocol import BUSY
from gpudoc.train.ranks.pulse import SAVING
from gpudoc.train.state.capture import capture, copied_bytes, rng_document
from gpudoc.train.state.checkpoint import Content, found_in
from gpudoc.train.state.staging import Staging
from gpudoc.train.state.writer import Writer
from gpudoc.train.step.step import Stepper
from gpudoc.units import MIB

# a thread's stack of 8 MiB and the memory for writing (1.2 MiB, 2026-11-21), with a margin
_WRITER_BYTES = 16 * MIB
NO_ROOM = "there is no memory to write checkpoints during the steps, so from now on steps wait for them"


@dataclass(kw_only=True)
class Saving:
    """Captures and writes checkpoints during the steps, or between them if memory is short.

    `constants` are part of every checkpoint; `place` returns the position of a stream of data; `write_rows` writes the
    rows of the steps so far, since a run that continues from the checkpoint does not repeat them; `keep` checkpoints
    stay besides the best. `saved_step` is the step of the last checkpoint, -1 if there is none.
    """

    stepper: Stepper
    course: Course
    writer: Writer
    staging: Staging
    generators: Generators
    constants: Mapping[str, object]
    place: Callable[[], bytes | None]
    write_rows: Callable[[], None]
    keep: int
    saved_step: int = -1
    waits: bool = field(default=False, init=False)
    _in_turn: bool = field(default=False, init=False)
    _beside: bool = field(default=False, init=False)
    _untold: bool = field(default=False, init=False)
    _good: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._good = [step for step, _ in found_in(self.writer.folder)]

    def save(self) -> None:
        """Begin a checkpoint of this step boundary; `waits` stays true while the last one is still being written."""
        ranks, progress = self.stepper.parts.ranks, self.course.progress
        ranks.pulse.now(SAVING)
        self.waits = bool(ranks.vote(BUSY if self.writer.busy else 0))
        if self.waits:
            return
        self.write_rows()
        if not self._in_turn and self._lacks_room():
            self._write_in_turn()
        ranks.align_buffers(self.stepper.parts.model)
        progress.samples = self.course.order.samples_before(progress.step)
        progress.micro_batch = self.course.order.micro_batch
        states = ranks.gather(rng_document(self.generators.snapshot()))
        if ranks.rank == 0 or ranks.is_sharded:
            # gathering full weights costs time and memory: only the best and the last checkpoint have them in a file
            wanted = progress.step in (progress.best_step, self.course.end_step)
            content = replace(self._capture(dict(enumerate(states)), wanted), place=self.place())
            best = progress.best_step
            keep = [step for step in self._good if step != progress.step][: self.keep - 1]
            self._beside = not self._in_turn
            # between steps the written tensors are not copies: the next step would change them
            self.writer.start(content, tuple(keep if best is None else {*keep, best}), beside=self._beside)
        self.saved_step = progress.step

    def collect(self, *, wait: bool = False, final: bool = False) -> Iterator[Event]:
        """Yield the outcome of the checkpoint that was being written; GpudocError if a `final` one failed."""
        if wait:
            self.stepper.parts.ranks.pulse.now(SAVING)
        found = self.writer.collect(wait=wait)
        match found:
            case Saved():
                self._good = [step for step, _ in found_in(self.writer.folder)]
                yield found
            case OSError():
                self.saved_step = -1
                if self._beside and not self.stepper.parts.ranks.is_sharded and is_out_of_memory(found):
                    if not self._in_turn:
                        self._write_in_turn()
                    yield from self.tell()
                    self.waits = True
                    return
                reason = found.strerror or str(found)
                message = f"a checkpoint could not be written: {reason}"
                if final:
                    earlier = f"the newest complete one is step-{self._good[0]}" if self._good else "there is none"
                    raise GpudocError(
                        f"{self.writer.folder}: the last {message[2:]}; {earlier}",
                        hint="free some space, then run the same command again",
                        exit_code=ExitCode.BAD_ANSWER,
                    )
                yield Said(f"{message}; training continues, and earlier checkpoints stay", warning=True)
            case None:
                pass

    def close(self) -> Iterator[Event]:
        """Save the last state and wait until it is on disk; GpudocError if it cannot be written."""
        if self.saved_step != self.course.progress.step or self.writer.busy:
            yield from self.collect(wait=True)
        for _ in range(2):
            # the second time without a copy, if there was no memory for one the first time
            if self._is_unsaved():
                self.save()
                yield from self.collect(wait=True, final=True)

    def give_way(self) -> bool:
        """Wait for the checkpoint that takes memory during the steps, and write later ones between steps.

        False if none is being written: then memory must be freed elsewhere.
        """
        if self.stepper.parts.ranks.world > 1 or self._in_turn or not self.writer.busy:
            return False
        self.writer.settle()
        self._write_in_turn()
        return True

    def tell(self) -> Iterator[Said]:
        """Say once that steps wait for checkpoints from now on."""
        if self._untold:
            self._untold = False
            yield Said(NO_ROOM)

    def _write_in_turn(self) -> None:
        self._in_turn = self.staging.in_place = self._untold = True
        free_memory(self.stepper.parts.device)

    def _is_unsaved(self) -> bool:
        """Whether any rank lacks a checkpoint of this step: only the rank that writes learns that writing failed."""
        return any(self.stepper.parts.ranks.gather(self.saved_step != self.course.progress.step))

    def _lacks_room(self) -> bool:
        """Whether a copy of the state, on top of the peak so far, would not fit under this process's limit."""
        parts = self.stepper.parts
        if parts.device.type != "cpu" or parts.ranks.is_sharded:
            return False
        room = room_bytes()
        return room is not None and room < copied_bytes(parts.model, parts.optimizer) + _WRITER_BYTES

    def _capture(self, random: Mapping[int, Mapping[str, object]], wanted: bool) -> Content:
        take = self.stepper, self.course.progress, self.constants, random, self.staging
        try:
            return capture(*take, whole=wanted)
        except Exception as problem:
            # sharded ranks capture together, so one rank cannot repeat it
            if not is_out_of_memory(problem) or self.stepper.parts.ranks.is_sharded:
                raise
        self._write_in_turn()
        return capture(*take, whole=wanted)
