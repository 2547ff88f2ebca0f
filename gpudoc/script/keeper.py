"""The process above a command: builds its cell, starts it, adopts its orphans, and ends all of its processes.

`launch` runs it as a program with only the standard library, so that it starts at once and costs little. When gpudoc
ends for any reason, the kernel signals the keeper, which ends all processes of the command.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpudoc.process.lifetime import adopt_orphans, die_with_parent
from gpudoc.script import walls

# asks the keeper to end everything. It is not a signal of users: a scheduler sends those to every process, and then the
# command itself decides how to end
END = signal.SIGRTMIN
_THE_COMMANDS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_HEARD = (signal.SIGCHLD, END)
_LOOK_S = 0.5
# a process that waits in the kernel, for a device or a dead file system, survives SIGKILL; we wait this long for it
KILLED_S = 10.0


class KeeperPipe:
    """Reports to gpudoc what happens, one JSON line each; it is not an error if no one reads them."""

    def __init__(self, number: int) -> None:
        self._number = number
        os.set_inheritable(number, False)

    def say(self, **told: object) -> None:
        """`wall` and `why`, `failed`, `pid`, `full`, `code`, or `left` and `stuck`, as `Kept` reads them."""
        with contextlib.suppress(OSError):
            os.write(self._number, json.dumps(told).encode() + b"\n")


def main(arguments: Sequence[str]) -> None:
    """`main([number of the descriptor from which the order is read])`: keep one command to its end."""
    # not on the command line: an argument is limited to 128 KiB, and the order holds all arguments of the command
    with os.fdopen(int(arguments[0]), "rb") as file:
        order = json.load(file)
    teller = KeeperPipe(order["told"])
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_THE_COMMANDS, *_HEARD})
    adopt_orphans()
    die_with_parent(order["parent"], END)
    try:
        if order["cell"] is None:
            _keep(order, teller)
        else:
            _keep_in_a_cell(order, teller)
    except walls.WallError as problem:
        teller.say(wall=problem.what, why=str(problem))


def _keep_in_a_cell(order: Mapping[str, Any], teller: KeeperPipe) -> None:
    cell, folder = order["cell"], os.getcwd()
    made = walls.foreign(cell["near"])
    walls.separate(user=cell["user"], network=cell["network"], processes=cell["processes"])
    # the new user mapping makes the kernel forget the signal at the parent's death, so it is set again
    die_with_parent(order["parent"], END)

    def inside() -> None:
        layer = walls.build(walls.CellPlan(made=made, own_processes=cell["processes"], **cell["plan"]))
        os.chdir(folder)
        for path, content in cell.get("files", {}).items():
            try:
                Path(path).write_bytes(content.encode("latin-1"))
            except OSError as problem:
                raise walls.WallError("files", f"{path}: {problem.strerror}") from problem
        _keep(order, teller, layer)

    if not cell["processes"]:
        inside()
        return
    first = _fork(lambda: _as_the_first(inside, teller))
    while True:
        if signal.sigwait(_HEARD) == END:
            # when its first process ends, the kernel ends all other processes of the namespace
            os.kill(first, signal.SIGKILL)
        if os.waitpid(first, os.WNOHANG)[0]:
            return


def _as_the_first(action: Callable[[], None], teller: KeeperPipe) -> None:
    # the keeper outside has no pid in this namespace
    die_with_parent(0)
    try:
        action()
    except walls.WallError as problem:
        teller.say(wall=problem.what, why=str(problem))


def _keep(order: Mapping[str, Any], teller: KeeperPipe, layer: int | None = None) -> None:
    """Start the command, wait for its end, and end the processes that it leaves behind."""
    command, failure = _start(order)
    if failure:
        teller.say(failed=failure)
        return
    teller.say(pid=command)
    status, full = None, False
    while status is None:
        heard = signal.sigtimedwait(_HEARD, _LOOK_S)
        if heard is not None and heard.si_signo == END:
            _end_descendants(0.0)
            return
        if layer is not None and not full and _is_full(layer):
            full = True
            teller.say(full=True)
        status = _reap(command)
    teller.say(code=os.waitstatus_to_exitcode(status), full=layer is not None and _is_full(layer))
    left, stuck = _end_descendants(order["patience_s"])
    teller.say(left=left, stuck=stuck)


def _start(order: Mapping[str, Any]) -> tuple[int, str]:
    """The command's pid, or why it cannot be started."""
    ready, told = os.pipe2(os.O_CLOEXEC)
    keeper = os.getpid()

    def become() -> None:
        try:
            die_with_parent(keeper)
            _as_it_was_given()
            limit = order["memory_limit_bytes"]
            if limit is not None:
                _, hard = resource.getrlimit(resource.RLIMIT_DATA)
                resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))
            os.execvp(order["command"][0], order["command"])
        except OSError as problem:
            os.write(told, f"{order['command'][0]}: {problem.strerror}".encode())

    command = _fork(become)
    os.close(told)
    with os.fdopen(ready, "rb") as lines:
        return command, lines.read().decode("utf-8", "replace")


def _as_it_was_given() -> None:
    """Restore signals to a shell's state: Python's own handlers are removed, ignored signals stay ignored."""
    for number in _THE_COMMANDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_THE_COMMANDS, *_HEARD})


def _fork(action: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        action()
    finally:
        os._exit(127)


def _reap(command: int) -> int | None:
    """Reap the children that have ended; the command's status if it is among them."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == command:
                status = ended[1]
    return status


def _end_descendants(patience_s: float) -> tuple[list[str], list[str]]:
    """Ask all remaining processes to end, wait, and kill: returns the names of killed processes, and of those that are
    left KILLED_S later.
    """
    until, asked, killed = time.monotonic() + patience_s, False, {}
    while (left := _descendants()) and time.monotonic() < until + KILLED_S:
        late = time.monotonic() >= until
        for pid, name in left.items():
            if late:
                killed[pid] = f"{name} (pid {pid})"
            if late or not asked:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        asked = True
        signal.sigtimedwait((signal.SIGCHLD,), 0.02)
        _reap(0)
    return [name for pid, name in killed.items() if pid not in left], [f"{left[pid]} (pid {pid})" for pid in left]


def _descendants() -> dict[int, str]:
    """pid and name of each process below this one that has not ended; this process has adopted orphans below it."""
    parents: dict[int, tuple[int, str]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                before, _, after = Path(f"/proc/{name}/stat").read_text("utf-8", "replace").rpartition(")")
                words = after.split()
                if words[0] not in "ZX":
                    parents[int(name)] = (int(words[1]), before.partition("(")[2])
    found, more = {os.getpid()}, {os.getpid()}
    while more:
        more = {pid for pid, (parent, _) in parents.items() if parent in more} - found
        found |= more
    return {pid: parents[pid][1] for pid in found if pid in parents and pid != os.getpid()}


def _is_full(layer: int) -> bool:
    room = os.fstatvfs(layer)
    return room.f_bfree * 100 < room.f_blocks
