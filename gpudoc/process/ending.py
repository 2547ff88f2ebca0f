"""Ends processes: asks, waits, then kills them with all that they started; and says in words how one ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psutil

# Windows has no such signal: there, SIGTERM ends a process for good
SIGKILL = signal.Signals(getattr(signal, "SIGKILL", signal.SIGTERM))
# a process that hangs in the driver survives SIGKILL, so no wait may be endless
PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Ended:
    """The processes that had to be killed, and those still there when patience ended; each as 'python3 (pid 123)'."""

    killed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def how_it_ended(code: int | None) -> str:
    """An exit code as `subprocess` gives it, in words: 'ended by SIGSEGV', 'ended with code 3'."""
    if code is None:
        return "closed its pipe"
    if code >= 0:
        return f"ended with code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"ended by {names.get(-code, f'signal {-code}')}"


def signal_group(group: int, number: signal.Signals = SIGKILL) -> None:
    """Send a signal to a process group without waiting; a group that is gone or another user's is left alone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            # Windows has no process groups, and the processes that we start there start no others
            os.kill(group, number)
        else:
            os.killpg(group, number)


def end_process(
    process: subprocess.Popen[Any],
    *,
    ask: signal.Signals | None = None,
    grace_s: float = 0.0,
    patience_s: float = PATIENCE_S,
) -> bool:
    """End this process but not those that it started: send `ask`, wait `grace_s`, kill; True if it had to be killed."""
    if ask is not None:
        process.send_signal(ask)
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
        return True
    return False


def end_family(
    process: subprocess.Popen[Any],
    *,
    ask: signal.Signals | None = None,
    grace_s: float = 0.0,
    patience_s: float = PATIENCE_S,
) -> Ended:
    """End a process and all that it started: send `ask` to it alone, wait `grace_s`, kill the rest, and wait.

    The family is its descendants and every process in the process group or session that it leads, even if their
    parents have ended.
    """
    members = _family(process, {})
    if ask is not None:
        process.send_signal(ask)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    killed: dict[int, str] = {}
    until, pause = time.monotonic() + patience_s, 0.005
    while True:
        members = {**members, **_family(process, members)}
        # the process itself first: it could start others again
        alive = sorted(filter(_is_alive, members.values()), key=lambda member: member.pid != process.pid)
        for member in alive:
            _kill(member, killed)
        process.poll()
        if not alive or time.monotonic() >= until:
            return Ended(tuple(killed.values()), tuple(killed[member.pid] for member in alive if member.pid in killed))
        time.sleep(pause)
        pause = min(0.25, 2 * pause)


def _family(process: subprocess.Popen[Any], known: Mapping[int, psutil.Process]) -> dict[int, psutil.Process]:
    """The processes of the family that exist now; `known` are members seen before."""
    import psutil

    rows = {row.pid: row for row in psutil.process_iter(["ppid"])}
    # after the wait, the pid may belong to another process by now; the number of its group may not
    ended = process.returncode is not None
    found = {pid for pid in rows if _is_led_by(process.pid, pid)} | {p for p, row in known.items() if _is_alive(row)}
    found |= set() if ended else {process.pid}
    more = found
    while more:
        more = {pid for pid, row in rows.items() if row.info["ppid"] in more} - found
        found |= more
    return {pid: rows[pid] for pid in found if pid in rows and not (ended and pid == process.pid)}


def _is_led_by(leader: int, pid: int) -> bool:
    if sys.platform != "win32":
        with contextlib.suppress(OSError, AttributeError):
            return os.getpgid(pid) == leader or os.getsid(pid) == leader
    return False


def _is_alive(member: psutil.Process) -> bool:
    import psutil

    try:
        return bool(member.is_running() and member.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _kill(member: psutil.Process, killed: dict[int, str]) -> None:
    import psutil

    with contextlib.suppress(psutil.Error):
        killed.setdefault(member.pid, f"{member.name()} (pid {member.pid})")
        member.kill()
