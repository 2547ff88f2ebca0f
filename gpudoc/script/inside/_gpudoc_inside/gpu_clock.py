"""When the GPU was done with what had been queued, by its own clock: the host runs ahead of it, and is not held up."""

from __future__ import annotations

import os
import sys
from typing import Any


class GpuClock:
    """Marks in the queue of the GPU that the script trains on; without one, and while a graph is captured, none."""

    def __init__(self) -> None:
        self._device: int | None = None
        self._process = os.getpid()

    def start(self, device: Any) -> None:
        """From here on there are marks, if `device` is a GPU."""
        self._device = (device.index or 0) if device.type == "cuda" else None

    def mark(self) -> Any:
        """A mark behind all that is queued now."""
        # what a fork inherits is of no use to it
        if self._device is None or self._process != os.getpid():
            return None
        try:
            cuda: Any = sys.modules["torch"].cuda
            # a graph would keep it, or fail
            if cuda.is_current_stream_capturing():
                return None
            mark = cuda.Event(enable_timing=True)
            mark.record(cuda.current_stream(self._device))
            return mark
        except Exception:
            # a GPU that has failed: the script will hear of it from its own call
            self._device = None
            return None

    def is_past(self, mark: Any, wait: bool = False) -> bool:
        """Whether the GPU has come to a mark; with `wait` it is waited for. Where there is no mark, or no GPU: yes."""
        if mark is None or self._device is None or self._process != os.getpid():
            return True
        try:
            if sys.modules["torch"].cuda.is_current_stream_capturing():
                return False
            if wait:
                mark.synchronize()
            return bool(mark.query())
        except Exception:
            self._device = None
            return True

    def seconds(self, begin: Any, end: Any, otherwise: float) -> float:
        """Seconds of the GPU's between two marks that are past; `otherwise` where one is missing or it has failed."""
        if begin is None or end is None or self._device is None:
            return otherwise
        try:
            return float(begin.elapsed_time(end)) / 1e3
        except Exception:
            self._device = None
            return otherwise
