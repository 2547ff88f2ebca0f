"""Children that ask the machine: read as they speak, killed at their deadline, and never waited for."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpudoc.errors import GpudocError

_LAUNCH = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from gpudoc.facts.worker import main; main(sys.argv[2:])"
)
_MOST_BYTES = 64 << 20


@dataclass(slots=True, kw_only=True)
class Child:
    """One process that tells facts line by line, and what became of it.

    A process stuck in a driver survives SIGKILL, so nothing here ever waits for one: its pipe is closed instead.
    """

    name: str
    process: subprocess.Popen[bytes]
    deadline_s: float
    began: float = field(default_factory=time.monotonic)
    facts: list[tuple[tuple[str, ...], object, bool]] = field(default_factory=list)
    asking: str = ""
    seconds: float = 0.0
    failure: str = ""
    done: bool = False
    timed_out: bool = False
    _rest: bytes = b""
    _size: int = 0

    def take(self, data: bytes) -> None:
        """Read what arrived; an empty `data` means that the child closed its end."""
        self._size += len(data)
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._take_line(line)
        if self._size > _MOST_BYTES:
            self.finish(failure="said more than 64 MiB")
        elif not data and not self.done:
            self.finish(failure=self._ended_early())

    def finish(self, *, failure: str = "", timed_out: bool = False) -> None:
        """Stop listening; the process is killed with its children, and left behind if it will not die."""
        self.done, self.failure, self.timed_out = True, failure, timed_out
        self.seconds = time.monotonic() - self.began
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for pipe in (self.process.stdout, self.process.stdin):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        self.process.poll()

    def answer(self, line: str) -> None:
        """Write one line to the child's standard input, if it still listens."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()

    def _take_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return  # a library that prints on its own
        if not isinstance(message, dict):
            return
        if "begin" in message:
            self.asking = str(message["begin"])
        elif "end" in message and not self.done:
            self.finish()
        elif "fact" in message or "item" in message:
            path = message.get("fact") or message.get("item") or []
            self.facts.append((tuple(map(str, path)), message.get("value"), "item" in message))

    def _ended_early(self) -> str:
        code = self.process.poll()
        if code is None:
            # the pipe closes a moment before the process can be reaped; a short look, never a wait
            time.sleep(0.05)
            code = self.process.poll()
        how = f"ended by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with code {code}"
        return f"{how} while asking: {self.asking}" if self.asking else how


def start_worker(name: str, probes: Sequence[str], root: Path, deadline_s: float) -> Child:
    """Gpudoc's own worker for `probes`, started with the parent's import path and without site's start-up work."""
    paths = json.dumps([path for path in sys.path if path])
    command = [sys.executable, "-I", "-S", "-c", _LAUNCH, paths, str(root), *probes]
    return Child(name=name, process=_start(command, None), deadline_s=deadline_s)


def start_examined(python: Path, *, quick: bool, environment: Mapping[str, str], deadline_s: float) -> Child:
    """The Python that is examined, telling of itself, its packages and its torch; GpudocError when it is no program."""
    if not os.access(python, os.X_OK) or python.is_dir():
        raise GpudocError(f"not a Python that can be run: {python}", hint="gpudoc doctor --python /path/to/python")
    script = Path(__file__).with_name("examined_python.py")
    command = [str(python), str(script), *(["--quick"] if quick else [])]
    return Child(name="torch", process=_start(command, environment), deadline_s=deadline_s)


def _start(command: Sequence[str], environment: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
        bufsize=0,
    )


def listen(children: Iterable[Child], on_finish: Callable[[Child], None]) -> None:
    """Read all children until each has ended or passed its deadline; `on_finish` hears of each end at once."""
    with selectors.DefaultSelector() as selector:
        for child in children:
            assert child.process.stdout is not None
            os.set_blocking(child.process.stdout.fileno(), False)
            selector.register(child.process.stdout, selectors.EVENT_READ, child)
        while selector.get_map():
            waiting: list[Child] = [key.data for key in selector.get_map().values()]
            now = time.monotonic()
            nearest = min(child.began + child.deadline_s for child in waiting)
            for key, _ in selector.select(max(0.0, nearest - now)):
                _read(key.data)
            for child in waiting:
                if not child.done and time.monotonic() >= child.began + child.deadline_s:
                    child.finish(timed_out=True, failure=_no_answer(child))
            for key in list(selector.get_map().values()):
                if key.data.done:
                    selector.unregister(key.fileobj)
                    on_finish(key.data)


def _read(child: Child) -> None:
    assert child.process.stdout is not None
    with contextlib.suppress(BlockingIOError):
        child.take(os.read(child.process.stdout.fileno(), 1 << 20))


def _no_answer(child: Child) -> str:
    return f"no answer within {child.deadline_s:g} s: {child.asking or 'it did not start'}"
