"""Where the time of training goes, always on: host clocks on a CPU, events in the stream on a GPU."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch

PHASES = ("data_wait", "transfer", "compute", "communicate", "checkpoint", "evaluate", "other")
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
        """End the stretch; without one that began, nothing."""
        if not self._on_device:
            if self._began is not None:
                self._seconds += clock() - self._began
                self._began = None
        elif self._open is not None:
            self._open[1].record(torch.cuda.current_stream(self._device))
            self._pairs.append(self._open)
            self._open = None

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

    @property
    def wall_s(self) -> float:
        """The whole stretch."""
        return sum(self.seconds.values())

    def share(self, phase: str) -> float:
        """The phase's part of the whole, 0 to 1."""
        return self.seconds[phase] / self.wall_s if self.wall_s > 0 else 0.0

    def __add__(self, other: Split) -> Split:
        return Split({phase: self.seconds[phase] + other.seconds[phase] for phase in PHASES})


NOTHING = Split(dict.fromkeys(PHASES, 0.0))


class Meter:
    """Collects one stretch: the loop adds host times, the stopwatches add what only the device knows.

    On a GPU waiting for data counts only where the device stood idle meanwhile: the gap between the end of one step
    and the start of the next in the stream, as far as the host spent it in the loader.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_device = device.type == "cuda"
        self._device = device
        self.data_wait = 0.0
        self.compute = 0.0
        self.checkpoint = 0.0
        self.evaluate = 0.0
        self.transfer = Stopwatch(device)
        self.communicate = Stopwatch(device)
        self.step = Stopwatch(device)
        self.waits: list[float] = []
        self._began = clock()

    def wait(self, seconds: float) -> None:
        """The host spent `seconds` in the loader; a step begins now."""
        if self._on_device:
            self.waits.append(seconds)
            self.step.start()
        else:
            self.data_wait += seconds

    def step_done(self) -> None:
        """The step that began is fully queued."""
        if self._on_device:
            self.step.stop()

    def step_failed(self) -> None:
        """The step that began was undone; its time counts as what it was."""
        self.step_done()

    def watch_backward(self, loss: torch.Tensor) -> None:
        """Have what backward waits for at its end, once all is computed, count as communication; on a GPU.

        There DDP and FSDP wait for the gradients of others: what of the exchange did not fit beside the computation.
        """
        if self._on_device and loss.requires_grad:
            # the engine's calls at the end of backward run in the order in which they were asked for: this one first
            engine = torch.autograd.Variable._execution_engine
            loss.register_hook(lambda _: engine.queue_callback(self._wait_begins))  # type: ignore[no-untyped-call]

    def backward_done(self) -> None:
        """Backward, which was watched, is fully queued."""
        self.communicate.stop()

    def _wait_begins(self) -> None:
        self.communicate.start()

    def restart(self) -> None:
        """Begin the stretch now."""
        self.take()

    def take(self) -> Split:
        """The stretch since the last call; waits for the device."""
        if self._on_device:
            torch.cuda.synchronize(self._device)
            self._read_device()
        now = clock()
        wall, self._began = now - self._began, now
        transfer, communicate = self.transfer.take(), self.communicate.take()
        known = {
            "data_wait": self.data_wait,
            "transfer": transfer,
            "compute": max(0.0, self.compute - transfer - communicate),
            "communicate": communicate,
            "checkpoint": self.checkpoint,
            "evaluate": self.evaluate,
        }
        self.data_wait = self.compute = self.checkpoint = self.evaluate = 0.0
        return Split({**known, "other": max(0.0, wall - sum(known.values()))})

    def _read_device(self) -> None:
        """Replace host times by the device's: busy stretches, and gaps as far as the host waited for data in them."""
        waits, self.waits = self.waits, []
        end: torch.cuda.Event | None = None
        for wait, (first, second) in zip(waits, self.step.stretches(), strict=False):
            # a stretch begins with an idle device, since the one before ended with waiting for it
            gap = wait if end is None else max(0.0, end.elapsed_time(first) / 1e3)
            self.data_wait += min(wait, gap)
            end = second
        self.compute = self.step.take()


def memory_peak_bytes(device: torch.device) -> int:
    """The most memory held so far: allocated on the GPU, resident on a CPU (`grep VmHWM /proc/self/status`).

    On Windows it is the peak working set.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:
        return _peak_of_windows()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _peak_of_windows() -> int:
    import psutil

    found = psutil.Process().memory_info()
    return int(getattr(found, "peak_wset", found.rss))


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
