"""Examines single steps closely: for their memory, and for a profiler trace (Perfetto)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from gpudoc.train.events import Event, Said
from gpudoc.train.loop.census import Census

# the first steps compile, allocate and tune kernels, so they are not typical
_SKIPPED_STEPS = 3


class Tracer:
    """Lets `census` watch its step, and records `steps` steps after the first three into run/trace.json."""

    def __init__(self, folder: Path, steps: int, census: Census | None = None) -> None:
        self._census = census
        self._path = folder / "trace.json"
        self._left = steps
        self._skip = _SKIPPED_STEPS
        self._profile: profile | None = None
        # whether there is anything left to record
        self.wanted = self._left > 0 or census is not None

    def advance(self) -> Iterator[Event]:
        """A step ended: begin, continue, or write the trace."""
        if self._census is not None and self._census.wanted:
            self._census.advance()
        if self._left > 0:
            yield from self._record()
        self.wanted = self._left > 0 or (self._census is not None and self._census.wanted)

    def _record(self) -> Iterator[Event]:
        if self._profile is None:
            self._skip -= 1
            if self._skip <= 0:
                activities = [ProfilerActivity.CPU]
                if torch.cuda.is_available():
                    activities.append(ProfilerActivity.CUDA)
                self._profile = profile(activities=activities)
                self._profile.start()
            return
        self._left -= 1
        if self._left == 0:
            yield self._finish()

    def close(self) -> None:
        """Write the trace so far if training ended early."""
        if self._census is not None:
            self._census.close()
        if self._profile is not None:
            self._finish()

    def _finish(self) -> Said:
        assert self._profile is not None
        self._profile.stop()
        reason = "it is incomplete; is the disk full?"
        try:
            self._profile.export_chrome_trace(str(self._path))
        except (OSError, RuntimeError) as problem:
            reason = str(problem)
        self._profile = None
        self._left = 0
        if not _is_whole(self._path):
            return Said(f"{self._path}: gpudoc cannot write the trace: {reason}; training continues", warning=True)
        return Said(f"trace written: {self._path}; open it at ui.perfetto.dev")


def _is_whole(trace: Path) -> bool:
    """Whether the trace's JSON object was written to its end; PyTorch does not report a full disk."""
    try:
        with trace.open("rb") as stream:
            stream.seek(max(0, trace.stat().st_size - 100))
            return stream.read().rstrip().endswith(b"}")
    except OSError:
        return False
