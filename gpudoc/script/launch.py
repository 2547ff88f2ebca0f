"""Starts a user's command whose output goes to a file: a trial, in a cell or in place."""

from __future__ import annotations

import contextlib
import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from gpudoc.process.ending import Ended
from gpudoc.script.cell import Cell
from gpudoc.script.process import CommandProcess, Terms


class Launch:
    """A running command; at the end of a `with` block it and all that it started are ended."""

    def __init__(self, kept: CommandProcess, output: Path, cleaning: contextlib.ExitStack) -> None:
        self._kept = kept
        self._output = output
        self._cleaning = cleaning

    def poll(self, wait_s: float = 0.0) -> int | None:
        """The exit code, negative for a signal, once the command and all that it started have ended; else None.

        Waits up to `wait_s` for that. GpudocError if the keeper of the command was killed.
        """
        while not self._kept.is_over:
            if not select.select([self._kept], [], [], wait_s)[0]:
                return None
            if not self._kept.hear():
                self._kept.wait()
        # the keeper may have sent its last messages and ended since the last `hear`
        while self._kept.hear():
            pass
        if self._kept.code is None:
            raise self._kept.refusal()
        self._cleaning.close()
        return self._kept.code

    @property
    def pid(self) -> int:
        """The pid of the process above the command on this machine: all that the command starts descends from it."""
        return self._kept.keeper_pid

    @property
    def full(self) -> bool:
        """Whether the command wrote as much as its cell has room for."""
        return self._kept.full

    def tail(self, num_bytes: int = 400_000) -> str:
        """The end of its output to stdout and stderr, in the order in which it came."""
        with self._output.open("rb") as file:
            file.seek(max(0, self._output.stat().st_size - num_bytes))
            return file.read().decode("utf-8", "replace")

    def end(self) -> Ended:
        """End the command and all that it started, at once, and remove its cell; returns what could not be ended."""
        ended = self._kept.end()
        self._cleaning.close()
        return ended

    def __enter__(self) -> Launch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    output: Path,
    cell: Cell | None = None,
    memory_limit_bytes: int | None = None,
) -> Launch:
    """Start `command` here, with empty stdin and its output in a file; GpudocError if it cannot be started.

    It ends when gpudoc ends for any reason, if the calling thread lives as long as gpudoc. The limit is
    RLIMIT_DATA of every process that it starts. `output` need not lie in the cell's scratch folder.
    """
    with contextlib.ExitStack() as cleaning, output.open("wb") as file:
        terms = Terms(
            environment=environment,
            streams=(subprocess.DEVNULL, file.fileno(), file.fileno()),
            cell=None if cell is None else cleaning.enter_context(cell.order()),
            memory_limit_bytes=memory_limit_bytes,
        )
        kept = CommandProcess(command, terms)
        cleaning.callback(kept.close)
        kept.wait_until_started()
        if kept.pid is None:
            kept.end()
            raise kept.refusal()
        return Launch(kept, output, cleaning.pop_all())
