"""Signs of life: where this process stands, in a few words of memory that gpudoc reads from outside.

The words are those of gpudoc's train/ranks/pulse.py, which cannot be imported here.
"""

from __future__ import annotations

import mmap
import os
import sys
from typing import Any

from .report import HookReport, is_worker, launched_ranks

_VERSION, _NUM_WORDS = 1, 16
_IS, _PID, _RANK, _WORLD, _STEP, _DOING, _BEATS = range(7)
_BUILDING, _READING, _EVALUATING, _ENDED, _OWN_CODE = 0, 1, 4, 6, 7


class RankPulse:
    """The signs of life of a process that trains; each is a number stored in memory. In a run alone, not in trials."""

    def __init__(self, report: HookReport) -> None:
        self._report = report
        self._words: Any = None
        self._is_over = not report.is_run
        if not self._is_over:
            # what a fork inherits is its parent's
            os.register_at_fork(after_in_child=self._forget)
        # who has stepped aside gives no signs any more, which is no hang
        report.undo.append(self.ends)

    def _forget(self) -> None:
        self._words = None

    def builds(self) -> None:
        """Torch has been imported: a rank of a launcher will train, and the others may wait for it until it does."""
        # a scheduler names a rank for torchrun itself, too, which will not train
        if "RANK" in os.environ and "LOCAL_RANK" in os.environ and self._report.started:
            self._now(_BUILDING)

    def asks(self, grad: bool) -> None:
        """A batch is asked for, to train with or to evaluate."""
        self._now(_READING if grad else _EVALUATING)

    def goes_on(self) -> None:
        """The batch is there: what comes now is the script's own."""
        self._now(_OWN_CODE)

    def steps(self, count: int) -> None:
        """This many optimizer steps are made."""
        words = self._words or self._opened()
        if words is not None:
            words[_STEP] = count
            words[_BEATS] += 1

    def ends(self) -> None:
        """The process ends by itself, or nothing more will be reported of it."""
        self._is_over = True
        if self._words is not None:
            self._words[_DOING] = _ENDED
            self._words = None

    def _now(self, doing: int) -> None:
        try:
            words = self._words or self._opened()
            if words is not None:
                words[_DOING] = doing
                words[_BEATS] += 1
        except Exception as problem:
            self._report.step_aside("a sign of life", problem)

    def _opened(self) -> Any:
        """Memory in a file of this process's own; None in trials, and for a loader worker, which belongs to another."""
        if self._is_over or is_worker():
            return None
        launched = launched_ranks()
        rank, world = ranks_of_torch() or (launched[0] or 0, launched[2] or 1)
        try:
            with open(os.path.join(self._report.folder, f"rank-{rank}-{self._report.process}"), "w+b") as file:
                # written, not only made longer: to store into a page for which the disk has no room is a SIGBUS
                file.write(bytes(_NUM_WORDS * 8))
                file.flush()
                words = memoryview(mmap.mmap(file.fileno(), _NUM_WORDS * 8)).cast("q")
        except (OSError, ValueError):
            # nobody hears it then, which is no matter of the script's
            self._is_over = True
            return None
        words[_IS], words[_RANK], words[_WORLD] = _VERSION, rank, world
        # last of all, since with it the rest is read
        words[_PID] = self._report.process
        self._words = words
        return words


def ranks_of_torch() -> tuple[int, int] | None:
    """(rank, ranks in all), as torch.distributed tells once a group was made; None before, and without it."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()
