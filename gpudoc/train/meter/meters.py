"""Measures where the time of training goes, always: with host clocks on a CPU, events in the stream on a GPU."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch

from gpudoc.train.events import PHASES
from gpudoc.train.meter.compilations import Compilations
from gpudoc.train.meter.head_start import HeadStart

# here, since an import at each log point costs more than the call; Windows does not have this module
with contextlib.suppress(ImportError):
    import resource

clock = time.perf_counter


class Stopwatch:
    """Adds up the time between `start` and `stop` without waiting for the device; `take` waits."""

    def __init__(self, device: torch.device) -> None:
        self._on_device = device.type == "cuda"
        self._device = device
        self._seconds = 0.0
        self._began: float | None = None
        self._pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._spare: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._open: tuple[torch.cuda.Event, torch.cuda.Event] | None = None

    def start(self) -> None:
        """Begin a stretch."""
        if not self._on_device:
            self._began = clock()
            return
        pair = self._spare.pop() if self._spare else (_event(), _event())
        pair[0].record(torch.cuda.current_stream(self._device))
        self._open = pair

    def stop(self) -> None:
        """End the stretch; does nothing if none has begun."""
        if not self._on_device:
            if self._began is not None:
                self._seconds += clock() - self._began
                self._began = None
        elif self._open is not None:
            self._open[1].record(torch.cuda.current_stream(self._device))
            self._pairs.append(self._open)
            self._open = None

    @property
    def is_running(self) -> bool:
        """Whether a stretch has begun but not ended."""
        return self._began is not None or self._open is not None

    def stretches(self) -> list[tuple[torch.cuda.Event, torch.cuda.Event]]:
        """The finished stretches on the device since the last `take`."""
        return self._pairs

    def take(self) -> float:
        """Seconds since the last call; on a GPU the caller has synchronised."""
        if self._on_device:
            self._seconds = sum(first.elapsed_time(second) for first, second in self._pairs) / 1e3
            self._spare += self._pairs
            self._pairs = []
        seconds, self._seconds = self._seconds, 0.0
        return seconds


@dataclass(frozen=True, slots=True)
class Split:
    """Seconds per phase of a stretch of training; they add up to its wall time."""

    seconds: Mapping[str, float]

    @classmethod
    def of(cls, seconds: Mapping[str, float]) -> Split:
        """The split in a document; documents of earlier versions lack the newer phases."""
        return cls({phase: seconds.get(phase, 0.0) for phase in PHASES})

    @property
    def wall_s(self) -> float:
        """The whole stretch."""
        return sum(self.seconds.values())

    def share(self, phase: str) -> float:
        """The phase's part of the whole, 0 to 1."""
        return self.seconds[phase] / self.wall_s if self.wall_s > 0 else 0.0


class _Begun(NamedTuple):
    """The host's seconds per activity between the queueing of the previous step and the start of a step."""

    data_wait: float
    evaluate: float
    checkpoint: float


@dataclass(slots=True)
class _Gaps:
    """Seconds of the device's own clock between steps, each counted once; `host` is the time with no other cause."""

    data_wait: float = 0.0
    evaluate: float = 0.0
    checkpoint: float = 0.0
    host: float = 0.0

    def add(self, seconds: float, begun: _Begun) -> None:
        """Divide a gap among the host's activities during it.

        The device may still have been busy when they began, so the host's last activity is counted first.
        """
        data_wait = min(seconds, begun.data_wait)
        checkpoint = min(seconds - data_wait, begun.checkpoint)
        evaluate = min(seconds - data_wait - checkpoint, begun.evaluate)
        self.evaluate += evaluate
        self.checkpoint += checkpoint
        self.data_wait += data_wait
        self.host += seconds - evaluate - checkpoint - data_wait


class Meter:
    """Collects one stretch: the loop adds host times, the stopwatches add times that only the device knows.

    On a GPU every moment of its clock counts once: for a step, from its first work to its last, and between steps for
    the host's activity. Waiting for data, evaluation and checkpoints count only while the device was not busy with
    earlier steps. Only `take` waits for the device.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_device = device.type == "cuda"
        self._device = device
        self.data_wait = 0.0
        self.compute = 0.0
        self.checkpoint = 0.0
        self.evaluate = 0.0
        # the host's wait for the other ranks, after the work of the step was queued
        self.voting = 0.0
        # the host's time in copies to the device; it waits in them if the source is not pinned
        self.copying = 0.0
        # the most memory held before the peak counter was reset
        self.peak_bytes = 0
        self.transfer = Stopwatch(device)
        self.communicate = Stopwatch(device)
        self.step = Stopwatch(device)
        self.compilations = Compilations()
        self._begun: list[_Begun] = []
        self._head_start: HeadStart | None = None
        self._base: torch.cuda.Event | None = None
        # the value of `compute` when the last step began
        self._queued = 0.0
        self._began = clock()

    def look_for_gaps(self) -> None:
        """From now on also measure how long a GPU is idle inside steps, which delays a few of them."""
        if self._on_device:
            self._head_start = HeadStart(self._device)

    def look_again(self) -> None:
        """Note that steps differ from now on: another micro batch or another way to compute."""
        if self._head_start is not None:
            self._head_start.again()

    def wait(self, seconds: float) -> None:
        """The host spent `seconds` in the loader; a step begins now."""
        if not self._on_device:
            self.data_wait += seconds
            return
        # a step that a stop interrupted has no end
        del self._begun[len(self.step.stretches()) :]
        self._begun.append(_Begun(seconds, self.evaluate, self.checkpoint))
        self.evaluate = self.checkpoint = 0.0
        if self._head_start is not None:
            self._head_start.advance(len(self._begun) - 1, self.compute - self._queued)
            self._queued = self.compute
        self.step.start()

    def step_done(self) -> None:
        """The step that began is fully queued."""
        if self._on_device:
            self.step.stop()

    def watch_backward(self, loss: torch.Tensor) -> None:
        """On a GPU, count the wait at the end of backward, after all computation, as communication.

        There DDP and FSDP wait for gradients of other ranks: the part of the exchange that computation did not hide.
        """
        if self._on_device and loss.requires_grad:
            # the engine runs its callbacks at the end of backward in the order of registration: this one first
            engine = torch.autograd.Variable._execution_engine
            loss.register_hook(lambda _: engine.queue_callback(self._wait_begins))  # type: ignore[no-untyped-call]

    def backward_done(self) -> None:
        """The watched backward is fully queued."""
        self.communicate.stop()

    def _wait_begins(self) -> None:
        self.communicate.start()

    def restart(self) -> None:
        """Begin the stretch now."""
        self.take()

    def take(self) -> Split:
        """The stretch since the last call; waits for the device."""
        known = self._of_device() if self._on_device else self._of_host()
        now = clock()
        wall, self._began = now - self._began, now
        return Split({**known, "other": max(0.0, wall - sum(known.values()))})

    def _of_host(self) -> dict[str, float]:
        """A CPU's time by phase, from the host's clock, without the remainder ('other')."""
        transfer, communicate = self.transfer.take(), self.communicate.take() + self.voting
        busy = max(0.0, self.compute - transfer - communicate)
        compiling = min(self.compilations.read(), busy)
        known = {
            "data_wait": self.data_wait,
            "transfer": transfer,
            "compute": busy - compiling,
            "communicate": communicate,
            "host": 0.0,
            "compile": compiling,
            "checkpoint": self.checkpoint,
            "evaluate": self.evaluate,
        }
        self.data_wait = self.compute = self.checkpoint = self.evaluate = self.voting = 0.0
        return known

    def _of_device(self) -> dict[str, float]:
        """A GPU's time by phase, from its own clock."""
        torch.cuda.synchronize(self._device)
        num_steps = len(self.step.stretches())
        gaps = self._read_gaps()
        transfer, communicate = self.transfer.take(), self.communicate.take()
        busy = max(0.0, self.step.take() - transfer - communicate)
        compiled = self.compilations.read()
        idle = None if self._head_start is None else self._head_start.idle_s(busy, num_steps)
        # the host's delay cannot be longer than the time it took to queue the work
        idle = min(compiled if idle is None else idle, busy, self.compute)
        others = min(self.voting, idle)
        copies = min(self.copying, idle - others)
        host = gaps.host + idle - others - copies
        compiling = min(compiled, host)
        self.compute = self.voting = self.copying = self._queued = 0.0
        return {
            "data_wait": gaps.data_wait,
            "transfer": transfer + copies,
            "compute": busy - idle,
            "communicate": communicate + others,
            "host": host - compiling,
            "compile": compiling,
            "checkpoint": gaps.checkpoint,
            "evaluate": gaps.evaluate,
        }

    def _read_gaps(self) -> _Gaps:
        """The gaps between the steps since the last call; all of them have ended."""
        gaps, steps = _Gaps(), self.step.stretches()
        paused, pause_s = -1, 0.0
        if self._head_start is not None:
            inside = [*self.transfer.stretches(), *self.communicate.stretches()]
            paused, pause_s = self._head_start.read(steps, inside)
        end = self._base
        for number, (begun, (first, last)) in enumerate(zip(self._begun, steps, strict=False)):
            # nothing was read before the first step, and the device was idle
            gap = sum(begun) if end is None else end.elapsed_time(first) / 1e3
            gaps.add(max(0.0, gap - (pause_s if number == paused else 0.0)), begun)
            end = last
        self._base = base = _event()
        base.record(torch.cuda.current_stream(self._device))
        base.synchronize()
        if end is not None:
            # the time after the last step; its remainder is the reading of figures and belongs to no phase
            rest = _Gaps()
            rest.add(max(0.0, end.elapsed_time(base) / 1e3), _Begun(0.0, self.evaluate, self.checkpoint))
            gaps.evaluate += rest.evaluate
            gaps.checkpoint += rest.checkpoint
        self._begun.clear()
        self.evaluate = self.checkpoint = 0.0
        return gaps


def memory_peak_bytes(device: torch.device) -> int:
    """The most memory held so far: allocated on the GPU, resident on a CPU (`grep VmHWM /proc/self/status`).

    On Windows it is the peak working set.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    except NameError:
        return _peak_of_windows()
    return peak if sys.platform == "darwin" else peak * 1024


def _peak_of_windows() -> int:
    import psutil

    found = psutil.Process().memory_info()
    return int(getattr(found, "peak_wset", found.rss))


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
