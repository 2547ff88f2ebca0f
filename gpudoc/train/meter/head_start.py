"""A GPU's time for a step if Python is never late: sometimes the whole work of a step is queued before it begins."""

from __future__ import annotations

from collections.abc import Sequence

import torch

Stretch = tuple[torch.cuda.Event, torch.cuda.Event]

# the first steps load kernels and create the optimizer's state; later pauses get rarer, to cause almost no delay
_FIRST_STEP = 4
_RARER = 16
# this many steps after a change, a step is typical again
_SETTLING = 2
# the pause is this factor longer than the queueing of the previous step, but never longer than _LONGEST_S
_MARGIN = 1.5
_LONGEST_S = 2.0
# about a millisecond, to measure the length of a cycle
_CALIBRATION_CYCLES = 2_000_000


class HeadStart:
    """Lets the GPU pause before a step while Python queues it: the step then runs without gaps.

    Gaps remain if a model waits for the device itself, or queues more than the driver accepts at once (about a thousand
    kernels); then the computed idle time is too short rather than too long.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.current_stream(device)
        self._steps = 0
        self._next = _FIRST_STEP
        self._paused: tuple[int, torch.cuda.Event] | None = None
        self._busy_s: float | None = None
        # the first call loads the kernel
        self._pause(1)
        first, last = self._pause(_CALIBRATION_CYCLES), _event()
        last.record(self._stream)
        last.synchronize()
        self._cycles_per_s = _CALIBRATION_CYCLES / max(1e-6, first.elapsed_time(last) / 1e3)

    def advance(self, number: int, queueing_s: float) -> None:
        """Note that step `number` of this stretch begins; the previous step was queued in `queueing_s`."""
        self._steps += 1
        if self._steps < self._next or self._paused is not None or queueing_s <= 0:
            return
        pause_s = min(_LONGEST_S, _MARGIN * queueing_s)
        self._paused = (number, self._pause(int(pause_s * self._cycles_per_s)))

    def read(self, steps: Sequence[Stretch], inside: Sequence[Stretch]) -> tuple[int, float]:
        """The step of this stretch that began after a pause, and the pause's seconds; (-1, 0) if there is none.

        `inside` are the parts of the steps in which the GPU waited for copies and other ranks.
        """
        if self._paused is None:
            return -1, 0.0
        (number, began), self._paused = self._paused, None
        if number >= len(steps):
            self._next = self._steps + _SETTLING
            return -1, 0.0
        self._next = self._steps * _RARER
        first, last = steps[number]
        whole = first.elapsed_time(last)
        own = [(a, b) for a, b in inside if first.elapsed_time(a) >= 0 and first.elapsed_time(b) <= whole]
        waited = sum(a.elapsed_time(b) for a, b in own)
        self._busy_s = max(0.0, whole - waited) / 1e3
        return number, began.elapsed_time(first) / 1e3

    def again(self) -> None:
        """Forget the time of a step and pause again soon: steps change now, for example with another micro batch."""
        self._busy_s = self._paused = None
        self._next = self._steps + _SETTLING

    def idle_s(self, seconds: float, num_steps: int) -> float | None:
        """The idle part of the `seconds` of these steps on the GPU; None until that is known."""
        return None if self._busy_s is None else max(0.0, seconds - num_steps * self._busy_s)

    def _pause(self, cycles: int) -> torch.cuda.Event:
        """Queue a pause of this many cycles; returns the event before it."""
        before = _event()
        before.record(self._stream)
        with torch.cuda.stream(self._stream):
            torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        return before


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
