"""Child processes that examine the machine: read as they write, killed at their deadline, never waited for."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpudoc.errors import GpudocError
from gpudoc.facts.telling import STDOUT
from gpudoc.own_files import script_arguments
from gpudoc.process.ending import how_it_ended, signal_group

_LAUNCH = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from gpudoc.facts.worker import main; main(sys.argv[2:])"
)
_MOST_BYTES, _PIECE = 64 << 20, 1 << 20
# the note for a child in state D, which no signal can wake
STUCK = ", stuck in the kernel"
# killed processes that were still alive when we let them go; polled again, without waiting, at the next start
_UNREAPED: list[subprocess.Popen[bytes]] = []


@dataclass(slots=True, kw_only=True)
class Child:
    """One process that reports facts line by line, and how it ended.

    A process stuck in a driver survives SIGKILL, so nothing here ever waits for one: its pipe is closed instead.
    `group` is the process group to kill; a worker reports its own group, because it is the launcher's child, not ours.
    With a `limit_s` each answer restarts the deadline, until that many seconds have passed in total.
    """

    name: str
    reader: int
    deadline_s: float
    limit_s: float = 0.0
    group: int = 0
    process: subprocess.Popen[bytes] | None = None
    began: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)
    facts: list[tuple[tuple[str, ...], object, bool]] = field(default_factory=list)
    asking: str = ""
    seconds: float = 0.0
    failure: str = ""
    done: bool = False
    timed_out: bool = False
    _rest: bytes = b""
    _size: int = 0

    @property
    def due(self) -> float:
        """The time at which we give up on the child, by the monotonic clock."""
        return min(self.heard + self.deadline_s, self.began + max(self.deadline_s, self.limit_s))

    def take(self, data: bytes) -> None:
        """Read the bytes that arrived; empty `data` means that the child closed its end."""
        self._size += len(data)
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._take_line(line)
        if self._size > _MOST_BYTES:
            self.finish(failure="wrote more than 64 MiB")
        elif not data and not self.done:
            self.finish(failure=self._while_asking(self._how_it_ended()))

    def finish(self, *, failure: str = "", timed_out: bool = False) -> None:
        """Stop listening and kill the process with its children; it is left behind if it does not die."""
        self.done, self.failure, self.timed_out = True, failure, timed_out
        self.seconds = time.monotonic() - self.began
        if self.group:
            signal_group(self.group)

    def close(self) -> None:
        """Close the pipes; nothing that the process writes from now on is read."""
        with contextlib.suppress(OSError):
            os.close(self.reader)
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def answer(self, line: str) -> None:
        """Write one line to the child's standard input, if it still listens."""
        assert self.process is not None
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()

    def _take_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return  # a library printed this
        if not isinstance(message, dict) or self.done:
            return
        self.heard = time.monotonic()
        if "begin" in message:
            self.asking = str(message["begin"])
        elif "end" in message:
            self.finish()
        elif "died" in message:
            self.finish(failure=self._while_asking(str(message["died"])))
        elif "group" in message:
            self.group = int(message["group"])
        elif "fact" in message or "item" in message:
            path = message.get("fact") or message.get("item") or []
            self.facts.append((tuple(map(str, path)), message.get("value"), "item" in message))

    def _while_asking(self, how: str) -> str:
        return f"{how} while asking: {self.asking}" if self.asking else how

    def _how_it_ended(self) -> str:
        code = None if self.process is None else self.process.poll()
        if code is None and self.process is not None:
            # the pipe closes a moment before the process can be reaped; look again shortly, but never wait
            time.sleep(0.05)
            code = self.process.poll()
        return how_it_ended(code)


def start_workers(
    groups: Mapping[str, Sequence[str]],
    root: Path,
    deadlines_s: Mapping[str, float],
    limits_s: Mapping[str, float] = {},
) -> list[Child]:
    """Gpudoc's own workers, one for each group of probes; `Child` explains deadlines and limits.

    One launcher imports what they share and forks: this takes a fifth of the time of separate starts. Windows has no
    fork. The launcher gets the parent's import path, so it skips the start-up work of `site`.
    """
    pipes = {name: os.pipe() for name in groups}
    writers = {name: writer for name, (_, writer) in pipes.items()}
    try:
        if sys.platform == "win32":
            started = {
                name: _launch(root, {name: [STDOUT, list(probes)]}, stdout=writers[name])
                for name, probes in groups.items()
            }
        else:
            plan = {name: [writers[name], list(probes)] for name, probes in groups.items()}
            started = dict.fromkeys(groups, _launch(root, plan, pass_fds=tuple(writers.values())))
    finally:
        for writer in writers.values():
            os.close(writer)
    return [
        Child(
            name=name,
            reader=reader,
            deadline_s=deadlines_s[name],
            limit_s=limits_s.get(name, 0.0),
            group=started[name].pid,
        )
        for name, (reader, _) in pipes.items()
    ]


def _launch(
    root: Path, plan: Mapping[str, object], *, stdout: int = subprocess.DEVNULL, pass_fds: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    # an editable installation may need an import hook, which the worker does not have
    own = str(Path(__file__).resolve().parents[2])
    paths = json.dumps([*(path for path in sys.path if path), own])
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LAUNCH, paths, str(root), json.dumps(plan)],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        pass_fds=pass_fds,
        start_new_session=True,
    )
    _remember(process)
    return process


def start_examined(python: Path, *, quick: bool, environment: Mapping[str, str], deadline_s: float) -> Child:
    """Start the examined Python, which reports itself, its packages and its torch; GpudocError if it cannot be run."""
    if not os.access(python, os.X_OK) or python.is_dir():
        raise GpudocError(f"not a usable Python: {python}", hint="gpudoc doctor --python /path/to/python")
    script = Path(__file__).with_name("examined_python.py")
    reader, writer = os.pipe()
    try:
        process = subprocess.Popen(
            [str(python), *script_arguments(script), *(["--quick"] if quick else [])],
            stdin=subprocess.PIPE,
            stdout=writer,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        os.close(reader)
        raise GpudocError(
            f"{python} cannot be started: {error.strerror}", hint="gpudoc doctor --python PATH"
        ) from error
    finally:
        os.close(writer)
    _remember(process)
    return Child(name="torch", reader=reader, process=process, group=process.pid, deadline_s=deadline_s)


def _remember(process: subprocess.Popen[bytes]) -> None:
    _UNREAPED[:] = [known for known in _UNREAPED if known.poll() is None]
    _UNREAPED.append(process)


def listen(children: Iterable[Child], on_finish: Callable[[Child], None]) -> None:
    """Read all children until each has ended or passed its deadline; `on_finish` is called at once for each."""
    waiting = [*children]
    pipes = _ReadingThreads(waiting) if sys.platform == "win32" else _Selector(waiting)
    with pipes:
        while waiting:
            nearest = min(child.due for child in waiting)
            pipes.read(max(0.0, nearest - time.monotonic()))
            for child in [*waiting]:
                if not child.done and time.monotonic() >= child.due:
                    child.finish(timed_out=True, failure=_no_answer(child))
                if child.done:
                    waiting.remove(child)
                    pipes.drop(child)
                    on_finish(child)


class _Selector:
    """The pipes of children, read in this thread."""

    def __init__(self, children: Iterable[Child]) -> None:
        self._selector = selectors.DefaultSelector()
        for child in children:
            if sys.platform != "win32":
                os.set_blocking(child.reader, False)
            self._selector.register(child.reader, selectors.EVENT_READ, child)

    def read(self, seconds: float) -> None:
        """Give each child its new bytes; return as soon as some arrived, or after this many seconds."""
        for key, _ in self._selector.select(seconds):
            with contextlib.suppress(BlockingIOError):
                key.data.take(os.read(key.fd, _PIECE))

    def drop(self, child: Child) -> None:
        self._selector.unregister(child.reader)
        child.close()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._selector.close()


class _ReadingThreads:
    """The same for Windows, where `select` handles only sockets: here a thread waits on each pipe."""

    def __init__(self, children: Iterable[Child]) -> None:
        self._arrived: queue.SimpleQueue[tuple[Child, bytes]] = queue.SimpleQueue()
        for child in children:
            # the thread owns the pipe: closing a pipe during a read would wait for that read
            reader, child.reader = child.reader, -1
            threading.Thread(target=self._pass_on, args=(child, reader), daemon=True).start()

    def _pass_on(self, child: Child, reader: int) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(reader, _PIECE):
                self._arrived.put((child, data))
        self._arrived.put((child, b""))
        os.close(reader)

    def read(self, seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            child, data = self._arrived.get(timeout=seconds)
            if not child.done:
                child.take(data)

    def drop(self, child: Child) -> None:
        """Do the same as in `_Selector`; the thread ends with the child or, being a daemon, with this process."""
        child.close()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _no_answer(child: Child) -> str:
    # needed only if a child gave no answer
    from gpudoc.process.lifetime import state_of

    question = child.asking or "it did not start"
    state = state_of(child.group)
    # the child only waits for a CPU: that is not a hang if the machine's load is twice its number of CPUs
    if sys.platform != "win32" and state == "R" and os.getloadavg()[0] > 2 * (os.cpu_count() or 1):
        return f"the machine is too busy; it was still working after {time.monotonic() - child.began:.0f} s: {question}"
    if child.limit_s and child.due < child.heard + child.deadline_s:
        return f"answers are still coming after {child.limit_s:g} s: {question}"
    return f"no answer within {child.deadline_s:g} s{STUCK if state == 'D' else ''}: {question}"
