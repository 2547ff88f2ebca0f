"""Writing checkpoints beside the training: steps wait for the copy to the host only, never for the disk."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from gpudoc.train.checkpoint import Content, Fault, write
from gpudoc.train.events import Saved


class Writer:
    """One checkpoint at a time in a thread. A save that comes due meanwhile waits its turn at a later step."""

    def __init__(self, folder: Path, fault: Fault | None = None) -> None:
        self.folder = folder
        self._fault = fault
        self._thread: threading.Thread | None = None
        self._outcome: Saved | OSError | None = None
        self.last_seconds = 0.0

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being written, or its outcome waits to be collected."""
        return self._thread is not None

    def start(self, content: Content, keep: tuple[int, ...]) -> None:
        """Begin to write; the content must not change any more."""
        if self._thread is not None:
            raise RuntimeError("the last checkpoint is still being written")
        self._thread = threading.Thread(target=self._work, args=(content, keep), name="checkpoint-writer")
        self._thread.start()

    def collect(self, *, wait: bool = False) -> Saved | OSError | None:
        """The finished checkpoint or what went wrong, once; None while there is nothing new. `wait` joins first."""
        thread = self._thread
        if thread is None or (thread.is_alive() and not wait):
            return None
        thread.join()
        self._thread = None
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, Saved):
            self.last_seconds = outcome.seconds
        return outcome

    def _work(self, content: Content, keep: tuple[int, ...]) -> None:
        began = time.perf_counter()
        try:
            path = write(self.folder, content, keep=keep, fault=self._fault)
            size = sum(entry.stat().st_size for entry in path.iterdir())
            self._outcome = Saved(step=content.step, path=path, num_bytes=size, seconds=time.perf_counter() - began)
        except OSError as problem:
            self._outcome = problem
        except Exception as problem:
            self._outcome = OSError(f"{type(problem).__name__}: {problem}")
