"""The fork server of a search: it imports the workload and reads samples once, then forks new processes per trial.

If a test shows that forked processes do not work, each process is a new program that does its own imports and reading.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gpudoc.errors import GpudocError
from gpudoc.process.ending import signal_group
from gpudoc.process.imports import uncollected
from gpudoc.process.lifetime import adopt_orphans, die_with_parent
from gpudoc.tune.trial.wire import (
    GO_ON,
    Envelope,
    Event,
    Exited,
    Failed,
    Ready,
    TrialStart,
    TrialStarted,
    command,
    decode,
    encode,
    receive,
    send,
)

if TYPE_CHECKING:
    from gpudoc.tune.child.probe import Prepared

# the sender of the orders
_PARENT = "gpudoc tune"
_LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND


@dataclass(frozen=True, slots=True)
class _Child:
    trial: int
    rank: int
    pid: int
    group: int


def main(handle: int, source: str, parent: int) -> None:
    """Import, prepare the workload `source` once the parent says so, answer over the socket `handle`, and start trials
    until it closes.

    Ends at once if processes forked from it would not work.
    """
    channel = _stand_by(handle, parent)
    asked = False
    try:
        with uncollected():
            from gpudoc.tune.child.prepare import import_beforehand, prepare, why_not_fork

            # another fork server may import now, too; the user's code runs in one at a time, since it may write files
            import_beforehand()
        asked = _await_order(channel)
        prepared = prepare(source)
        no_fork = why_not_fork(prepared.num_threads)
    except Exception as problem:
        # an unread order would reset the channel before the parent receives the failure
        asked = asked or _await_order(channel)
        send(channel, Envelope(event=_failure(problem)))
        return
    send(channel, Envelope(event=Ready(no_fork=no_fork)))
    if no_fork:
        # imported code may hold a part of the GPU, and trials need all of it: a process with `serve` continues
        os._exit(0)
    ForkServer(channel, source, prepared).serve()
    # all its processes are gone: a regular exit of torch would only make the parent wait
    os._exit(0)


def _await_order(channel: socket.socket) -> bool:
    """Wait until the parent says to go on; ends this process if the parent closes the channel instead."""
    if channel.recv(len(GO_ON)) != GO_ON:
        os._exit(0)
    return True


def serve(handle: int, source: str, parent: int) -> None:
    """Start trials as new programs, without having imported the workload."""
    ForkServer(_stand_by(handle, parent), source, None).serve()


def _stand_by(handle: int, parent: int) -> socket.socket:
    """The channel to the parent, in a process that adopts orphans, leaves signals to the parent and ends with it."""
    adopt_orphans()
    die_with_parent(parent)
    # the parent handles them and ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return socket.socket(fileno=handle)


def run_alone(handle: int, source: str, parent: int, order: bytes, rank: int) -> None:
    """Run one rank of the trial of `order` in a process that was not forked and so prepares the workload itself."""
    die_with_parent(parent)
    channel = socket.socket(fileno=handle)
    start = decode(TrialStart, order, "the fork server")
    try:
        with uncollected():
            from gpudoc.tune.child.prepare import import_beforehand, prepare

            import_beforehand()
        prepared = prepare(source)
    except Exception as problem:
        from gpudoc.tune.trial.failure import describe_failure

        send(channel, Envelope(trial=start.trial, rank=rank, event=describe_failure(problem)))
        os._exit(1)
    _run_trial(channel, prepared, start, rank)


def _failure(problem: Exception) -> Failed:
    if isinstance(problem, GpudocError):
        return Failed(message=problem.message, hint=problem.hint)
    from gpudoc.train.blame import users_traceback

    text = users_traceback(problem)
    return Failed(message=f"{type(problem).__name__}: {problem}", traceback=text[-8000:])


def _run_trial(channel: socket.socket, prepared: Prepared, start: TrialStart, rank: int) -> NoReturn:
    """Be one rank of a trial, and end."""
    from gpudoc.tune.child.inspection import inspect_workload
    from gpudoc.tune.child.plan import run_plan
    from gpudoc.tune.child.probe import run_probe
    from gpudoc.tune.child.rank import place_of

    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

        def emit(event: Event) -> None:
            send(channel, Envelope(trial=start.trial, rank=rank, event=event))

        request = start.request
        place = place_of(start.place, rank, request.ranks)
        if start.inspect:
            inspect_workload(prepared, place, emit)
        elif request.kind == "plan":
            run_plan(prepared, request, place, emit)
        else:
            run_probe(prepared, request, place, emit)
        sys.stdout.flush()
        sys.stderr.flush()
        status = 0
    except Exception:
        # the parent reads the log of a process that ends without an event
        traceback.print_exc()
    finally:
        os._exit(status)


class ForkServer:
    """Starts trials on request, reports how their processes ended, and leaves no process behind.

    Trials are forked with the `prepared` workload; if it is None, each is a new program.
    """

    def __init__(self, channel: socket.socket, source: str, prepared: Prepared | None) -> None:
        self._channel = channel
        self._source = source
        self._prepared = prepared
        self._children: dict[int, _Child] = {}

    def serve(self) -> None:
        """Run requests until the parent closes the socket."""
        while True:
            handles = [self._channel.fileno(), *self._children]
            readable, _, _ = select.select(handles, [], [])
            for handle in readable:
                if handle in self._children:
                    self._reap(handle)
                elif handle == self._channel.fileno():
                    order = receive(self._channel, TrialStart, _PARENT)
                    if order is None:
                        self._end_all()
                        return
                    self._start(order)

    def _start(self, order: TrialStart) -> None:
        group = 0
        for rank in range(order.request.ranks):
            pid = self._start_one(order, rank, group)
            group = group or pid
            # both processes set the group, so that it is set whichever runs first
            _set_group(pid, group)
            handle = os.pidfd_open(pid)
            self._children[handle] = _Child(order.trial, rank, pid, group)
        started = TrialStarted(group=group, how="exec" if self._prepared is None else "fork")
        send(self._channel, Envelope(trial=order.trial, event=started))

    def _start_one(self, order: TrialStart, rank: int, group: int) -> int:
        """Start one rank of a trial, in a new group or in its siblings', with its own log; returns its pid."""
        if self._prepared is None:
            call = f"run_alone({self._channel.fileno()}, {self._source!r}, {os.getpid()}, {encode(order)!r}, {rank})"
            arguments = command(call)
            opened = (os.POSIX_SPAWN_OPEN, 1, order.log, _LOG_FLAGS, 0o600)
            return os.posix_spawn(
                arguments[0],
                arguments,
                os.environ,
                file_actions=[opened, (os.POSIX_SPAWN_DUP2, 1, 2)],
                setpgroup=group,
            )
        server = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            die_with_parent(server)
            _set_group(0, group)
            handle = os.open(order.log, _LOG_FLAGS, 0o600)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            _run_trial(self._channel, self._prepared, order, rank)
        finally:
            os._exit(1)

    def _reap(self, handle: int) -> None:
        child = self._children.pop(handle)
        _, wait_status = os.waitpid(child.pid, 0)
        os.close(handle)
        siblings = [other for other in self._children.values() if other.trial == child.trial]
        if not siblings:
            signal_group(child.group)
            self._kill_strays()
        status = os.waitstatus_to_exitcode(wait_status)
        send(self._channel, Envelope(trial=child.trial, rank=child.rank, event=Exited(status=status)))

    def _kill_strays(self) -> None:
        """Kill adopted orphans: processes that a trial left in another group become children of this process."""
        known = {child.pid for child in self._children.values()}
        for pid in _own_children():
            if pid not in known:
                _kill(pid)
                _wait(pid)

    def _end_all(self) -> None:
        for child in self._children.values():
            signal_group(child.group)
        self._children.clear()
        self._kill_strays()


def _own_children() -> list[int]:
    path = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    return [int(pid) for pid in path.read_text().split()]


def _set_group(pid: int, group: int) -> None:
    try:
        os.setpgid(pid, group)
    except (PermissionError, ProcessLookupError):
        return


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _wait(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return
