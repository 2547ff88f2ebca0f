"""Writing checkpoints during training: steps wait for the copy to the host only, never for the disk."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoc.train.events import Saved
from gpudoc.train.state.checkpoint import Content, Fault, write

if TYPE_CHECKING:
    from gpudoc.train.state.shards import Council


class Writer:
    """Writes one checkpoint at a time in a thread. A save that is due meanwhile waits until a later step.

    With a `council` all ranks write at the same time, each its part; without one only rank 0 writes.
    `busy`: a checkpoint is being written, or its outcome has not been collected yet.
    """

    def __init__(self, folder: Path, fault: Fault | None = None, council: Council | None = None) -> None:
        self.folder = folder
        self._council = council
        self._fault = fault
        self._thread: threading.Thread | None = None
        self.busy = False
        self._outcome: Saved | OSError | None = None
        self.last_seconds = 0.0

    def start(self, content: Content, keep: tuple[int, ...], *, beside: bool = True) -> None:
        """Begin to write; the content must no longer change. Without `beside`, writing is complete on return."""
        if self.busy:
            raise RuntimeError("the last checkpoint is still being written")
        self.busy = True
        if beside:
            thread = threading.Thread(target=self._work, args=(content, keep), name="checkpoint-writer")
            try:
                thread.start()
            except RuntimeError:
                # there is no memory for the thread's stack
                pass
            else:
                self._thread = thread
                return
        self._work(content, keep)

    def settle(self) -> None:
        """Return when nothing is being written; the outcome must still be collected."""
        if self._thread is not None:
            self._thread.join()

    def collect(self, *, wait: bool = False) -> Saved | OSError | None:
        """The finished checkpoint or its error, once; None while there is nothing new. `wait` joins first."""
        thread = self._thread
        if not self.busy or (thread is not None and thread.is_alive() and not wait):
            return None
        if thread is not None:
            thread.join()
        self._thread, self.busy = None, False
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, Saved):
            self.last_seconds = outcome.seconds
        return outcome

    def _work(self, content: Content, keep: tuple[int, ...]) -> None:
        began = time.perf_counter()
        try:
            if content.copying is not None:
                content.copying.wait()
            path = self._write(content, keep)
            size = sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())
            self._outcome = Saved(step=content.step, path=path, num_bytes=size, seconds=time.perf_counter() - began)
        except OSError as problem:
            self._outcome = problem
        except Exception as problem:
            self._outcome = OSError(f"{type(problem).__name__}: {problem}")
            self._outcome.__cause__ = problem

    def _write(self, content: Content, keep: tuple[int, ...]) -> Path:
        if self._council is None:
            return write(self.folder, content, keep=keep, fault=self._fault)
        from gpudoc.train.state.shards import write_together

        return write_together(self.folder, content, self._council, keep=keep, fault=self._fault)
