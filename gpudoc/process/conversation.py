"""A conversation with a child process, line by line: its output, its last line of stderr, and its end."""

from __future__ import annotations

import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from gpudoc.process.ending import PATIENCE_S, end_family, how_it_ended

_LOOK_S, _LAST_LINES_S = 0.2, 2.0
_LAST_WORDS_S = 5.0


class Conversation:
    """A process in a separate session, so that Ctrl+C reaches only its parent; `end` leaves nothing of it behind."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  closed by `end`
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=environment,
            start_new_session=True,
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._pump, daemon=True).start()

    def say(self, line: bytes) -> None:
        """Write a line; if the process has ended, `hear` finds that out."""
        assert self.process.stdin is not None
        with suppress(OSError, ValueError):
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()

    def hear(self, seconds: float) -> bytes | None:
        """The next line without its line end; None if no more will come, even if a child of it holds the pipe.

        TimeoutError if no line comes within `seconds`.
        """
        until = time.monotonic() + seconds
        while True:
            has_ended = self.process.poll() is not None
            try:
                # the thread that reads its last lines may be late on a busy machine
                left = _LAST_LINES_S if has_ended else min(_LOOK_S, max(0.0, until - time.monotonic()))
                return self._lines.get(timeout=left)
            except queue.Empty:
                if has_ended:
                    return None
                if time.monotonic() >= until:
                    raise TimeoutError from None

    def last_words(self) -> tuple[str, str]:
        """How the process ended, and the last line of its stderr: ('ended with code 1', 'KeyError: 3')."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_LAST_WORDS_S)
        lines: list[bytes] = []
        # another thread may have ended it
        with suppress(ValueError):
            self._complaints.seek(0)
            lines = [line for line in self._complaints if line.strip()]
        return how_it_ended(self.process.returncode), lines[-1].decode("utf-8", "replace").strip() if lines else ""

    def end(self, patience_s: float = PATIENCE_S) -> None:
        """End the process and all that it started."""
        end_family(self.process, patience_s=patience_s)
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        self._complaints.close()

    def _pump(self) -> None:
        # the thread owns the pipe: closing a pipe waits until a read from it returns
        assert self.process.stdout is not None
        with self.process.stdout as pipe:
            for line in pipe:
                # a line that a kill cut off has no line end
                if line.endswith(b"\n"):
                    self._lines.put(line[:-1])
        self._lines.put(None)
