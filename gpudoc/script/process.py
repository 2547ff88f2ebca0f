"""The parent's end of a keeper: the program that ends all processes of a command, even if gpudoc is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.ending import Ended, end_family
from gpudoc.script.keeper import END

_ROOT = Path(__file__).resolve().parents[2]
_CALL = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from gpudoc.script.keeper import main; main(sys.argv[1:])"
# a keeper ends everything at once when asked, unless the machine is very busy
_ASKED_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a command is kept: `cell` as the keeper reads it, None for no cell; `own_session`: away from our terminal.

    `patience_s`: the time that processes which outlive the command have to end. The memory limit is RLIMIT_DATA of
    every process.
    """

    environment: Mapping[str, str]
    streams: tuple[int, int, int]
    own_session: bool = True
    cell: Mapping[str, object] | None = None
    memory_limit_bytes: int | None = None
    patience_s: float = 0.0


@dataclass(slots=True)
class CommandProcess:
    """A command under a keeper; the fields hold the keeper's messages so far, and are None or empty before them.

    `pid` is the command's, as the command itself sees it; `code` its exit code, negative for a signal; `wall` and
    `why` say what could not be built; `failed` why it cannot be started; `left` are processes that outlived it and
    were killed; `stuck` those that could not be killed.
    """

    command: Sequence[str]
    terms: Terms
    pid: int | None = None
    code: int | None = None
    wall: str = ""
    why: str = ""
    failed: str = ""
    full: bool = False
    left: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    _process: subprocess.Popen[bytes] = field(init=False)
    _told: int = field(init=False)
    _torn: bytes = b""

    def __post_init__(self) -> None:
        self._told, theirs = os.pipe()
        to_read, to_write = os.pipe()
        terms = self.terms
        order = {
            "told": theirs,
            "parent": os.getpid(),
            "command": [os.fspath(word) for word in self.command],
            "cell": terms.cell,
            "memory_limit_bytes": terms.memory_limit_bytes,
            "patience_s": terms.patience_s,
        }
        stdin, stdout, stderr = terms.streams
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _CALL, str(to_read)],
                pass_fds=(theirs, to_read), stdin=stdin, stdout=stdout, stderr=stderr, env=dict(terms.environment),
                start_new_session=terms.own_session,
            )  # fmt: skip
        except BaseException:
            os.close(self._told)
            os.close(to_write)
            raise
        finally:
            os.close(theirs)
            os.close(to_read)
        # if the keeper ended before it read everything, `hear` finds out
        with contextlib.suppress(BrokenPipeError), os.fdopen(to_write, "wb") as file:
            file.write(json.dumps(order).encode())

    def fileno(self) -> int:
        """The descriptor that becomes readable when the keeper says something, or has ended."""
        return self._told

    @property
    def keeper_pid(self) -> int:
        """The pid of the keeper, the ancestor of the command and of all that it started."""
        return self._process.pid

    @property
    def is_over(self) -> bool:
        """Whether the keeper, and so all that it kept, has ended."""
        return self._process.poll() is not None

    def wait_until_started(self) -> None:
        """Wait until the command runs, or cannot."""
        while self.pid is None and not self.failed and not self.wall and self.hear():
            pass

    def hear(self) -> bool:
        """Wait for the keeper's next messages and store them; False once it has ended."""
        data = os.read(self._told, 1 << 16)
        *lines, self._torn = (self._torn + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        return bool(data)

    def _take(self, told: Mapping[str, object]) -> None:
        for name, value in told.items():
            setattr(self, name, tuple(map(str, value)) if isinstance(value, list) else value)

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to the command, or to its whole group if that is not ours; nothing if the command has ended."""
        assert self.terms.cell is None
        if self.pid is None or self.code is not None:
            return
        try:
            if group and self.terms.own_session:
                os.killpg(self._process.pid, number)
            else:
                os.kill(self.pid, number)
        except ProcessLookupError:
            return

    def end(self) -> Ended:
        """End the command and all that it started, at once; the result names processes that could not be ended."""
        if self._told < 0:
            return Ended()
        ended = end_family(self._process, ask=signal.Signals(END), grace_s=_ASKED_S)
        while self.hear():
            pass
        return ended

    def wait(self) -> None:
        """Wait until the keeper has ended, after its last message."""
        self._process.wait()

    def close(self) -> None:
        """Close the pipe; the keeper has ended."""
        if self._told >= 0:
            os.close(self._told)
            self._told = -1

    def refusal(self) -> GpudocError:
        """The error if the command was not started, or its keeper ended without reporting the command's end."""
        if self.failed:
            return GpudocError(f"cannot start the command: {self.failed}", hint="put the whole command after --")
        if self.wall:
            return GpudocError(f"the cell of a trial cannot be built: {self.why}", exit_code=ExitCode.FAULT)
        return GpudocError(
            f"the process that runs the command ended with code {self._process.poll()} without a message",
            hint="free some memory and try again; if the error remains, open an issue",
            exit_code=ExitCode.FAULT,
        )
