"""Out of memory during training: undo the step, shrink the micro batch, repeat the same global batch."""

from __future__ import annotations

import ctypes
import gc
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.shortage import ASYNCHRONOUS, is_out_of_memory
from gpudoc.train.blame import in_model
from gpudoc.train.events import Event, Rescued, Said
from gpudoc.train.loop.course import Rescues
from gpudoc.train.loop.snapshot import Snapshots
from gpudoc.train.ranks.distributed import abandoned
from gpudoc.train.ranks.protocol import OOM
from gpudoc.train.step.sequence import Moment
from gpudoc.train.step.step import Micro, Parts
from gpudoc.units import format_bytes
from gpudoc.workload import recompute

_MOST_TOLD = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RescueRules:
    """Whether the micro batch may shrink, and whether activations may be recomputed if one sample does not fit."""

    rescue: bool = True
    may_recompute: bool = True


class Rescuer:
    """Judges a step that failed, and halves the micro batch for the next attempt."""

    def __init__(self, parts: Parts, rescues: Rescues, rules: RescueRules, snapshots: Snapshots | None = None) -> None:
        self._parts = parts
        self._rescues = rescues
        self._rules = rules
        self._snapshots = snapshots
        self._noted = ""
        self._is_state = False
        self._kept: Path | None = None

    def note(self, problem: BaseException) -> int:
        """The flag OOM to vote with; keeps the message of `problem` for a report if nothing more can shrink."""
        self._noted = words_of(problem, self._parts.device)[:_MOST_TOLD]
        return OOM

    def judge(self, problem: Exception, at: Moment, micros: Sequence[Micro]) -> int:
        """The flag OOM for a failure that can be undone; otherwise raises the cause. Called inside `except`."""
        if not is_out_of_memory(problem):
            if at == "backward":
                raise in_model(problem, micros[0].batch, self._rescues.course.progress.step == 0) from problem
            raise problem
        self._kept = None if self._snapshots is None else self._snapshots.take(problem)
        self._is_state = at != "backward"
        if at in ("update", "torn") and self._parts.ranks.world > 1:
            raise abandoned("the optimizer was stepping") from problem
        if at == "torn":
            raise GpudocError(
                "out of memory while the optimizer was stepping: the weights may be half updated, so the run ends "
                "and can continue from its last checkpoint",
                hint="run the same command again with a smaller --batch-size"
                + self._smaller_state()
                + self._how_to_look("; "),
                exit_code=ExitCode.BAD_ANSWER,
            ) from None
        return self.note(problem)

    def shrink(self, seen: str, told: str = "") -> Iterator[Event]:
        """Halve the micro batch for a step that was undone; GpudocError if nothing more can shrink.

        `seen` are the shapes that did not fit; `told` is the error message if reading samples failed.
        """
        course = self._rescues.course
        order, step = course.order, course.progress.step
        free_memory(self._parts.device)
        smaller = max(1, order.micro_batch // 2)
        noted = f"; {self._noted}" if self._noted and not told else ""
        self._noted = ""
        recomputes = False
        if not self._rules.rescue:
            what = f": {told}" if told else f" with {seen}"
            raise self._hopeless(f"out of memory at step {step}{what}; rescue is off{noted}")
        if order.micro_batch == 1:
            recomputes = self._start_recomputing()
            if not recomputes:
                raise self._hopeless(f"out of memory at step {step} with one sample: {told or seen}{noted}")
        course.take_micro_batch(smaller)
        event = Rescued(
            step=step,
            from_batch=order.micro_batch,
            to_batch=smaller,
            phase="train",
            shapes=seen,
            activation_checkpointing=recomputes,
        )
        yield from self._rescues.record(event)
        if self._kept is not None:
            yield Said(f"what held the memory{self._how_to_look(': ')}")
            self._kept = None

    def _start_recomputing(self) -> bool:
        progress = self._rescues.course.progress
        if progress.activation_checkpointing is True or not self._rules.may_recompute:
            return False
        if not recompute.apply(self._parts.model):
            return False
        progress.activation_checkpointing = True
        return True

    def _hopeless(self, message: str) -> GpudocError:
        hint = "use smaller or shorter samples, a smaller model, or more memory; gpudoc tune --target says how much"
        if self._rules.rescue and not self._rules.may_recompute:
            hint = "train.activation_checkpointing: auto in the config trades time for memory; otherwise " + hint
        hint += self._smaller_state() + self._how_to_look("; it was held by: ")
        return GpudocError(message, hint=hint, exit_code=ExitCode.BAD_ANSWER)

    def _smaller_state(self) -> str:
        """The hint to make Adam's state smaller if the update had no memory, else ''."""
        if not self._is_state or type(self._parts.optimizer) not in (torch.optim.Adam, torch.optim.AdamW):
            return ""
        return "; --set optimizer_state=8bit keeps Adam's state in a quarter of the memory (pip install torchao)"

    def _how_to_look(self, lead: str) -> str:
        """The command that reads the snapshot, after `lead`; empty if there is no snapshot."""
        return "" if self._kept is None else f"{lead}gpudoc doctor {shlex.quote(str(self._kept))}"


def words_of(problem: BaseException, device: torch.device) -> str:
    """An error's message in one line, with the figures that the asynchronous allocator puts in other lines or omits."""
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    if not lines[0].startswith(ASYNCHRONOUS) or device.type != "cuda":
        return lines[0]
    if len(lines) > 1:
        return " ".join(" ".join(lines).split())
    free, total = torch.cuda.mem_get_info(device)
    held = format_bytes(torch.cuda.memory_allocated(device))
    return f"{lines[0]}: {format_bytes(free)} of {format_bytes(total)} is free, PyTorch uses {held}"


def free_memory(device: torch.device) -> None:
    """Return unused memory to the device and to the system."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return
