"""Runs one step in a separate session, ends all that it started, and looks at what it left on the card."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import psutil

from benchmarks.gpu_check import card
from benchmarks.gpu_check.model import Ended, Outcome, Result, State, Step, error_line
from gpudoc.process.lifetime import adopt_orphans, die_with_parent

ROOT = Path(__file__).resolve().parents[2]
# how long processes may take to end by themselves once their step has, and once they were asked to
GRACE_S = 5.0
# and how long one that was killed may stay: longer means that the kernel holds it, in the driver
STUCK_S = 10.0
# a driver frees the memory of a process a moment after its end
SETTLE_S = 10.0
LEFT_BYTES = 64 << 20
KEPT_LINES = 20_000
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopError(Exception):
    """Ctrl+C, or a signal that asks the run to end."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One process and all that it started: its exit status, None when it was cut, and who could not be ended."""

    status: int | None
    output: str
    errors: str
    left: Sequence[str]
    stuck: Sequence[str]


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Signals that end a program raise `StopError` in here, and orphans of steps come to this process."""

    def stop(number: int, _: object) -> None:
        raise StopError(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in ENDINGS}
    adopt_orphans()
    try:
        yield
    finally:
        adopt_orphans(False)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl+C does not interrupt the ending of processes."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _children(known: Collection[psutil.Process] = ()) -> list[psutil.Process]:
    """All that lives below this process but what is `known`; who left its group or lost its parent is here too."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if one not in known and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


def _describe(process: psutil.Process) -> str:
    try:
        words = process.cmdline()
        return f"pid {process.pid} ({' '.join(words[:6]) or process.name()})"
    except psutil.Error:
        return f"pid {process.pid}"


def end_all(known: Collection[psutil.Process], grace_s: float = GRACE_S) -> Sequence[str]:
    """End every process below this one that is not `known`, politely first; who they are that cannot be ended."""
    with _undisturbed():
        for process in _children(known):
            with contextlib.suppress(psutil.Error):
                process.terminate()
        psutil.wait_procs(_children(known), timeout=grace_s)
        until = time.monotonic() + STUCK_S
        while (left := _children(known)) and time.monotonic() < until:
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, timeout=0.5)
        stuck = [_describe(process) for process in _children(known)]
        _collect()
        return stuck


def _collect() -> None:
    """The exit statuses of adopted processes, so that none stays as a zombie."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _keep(stream: IO[bytes], lines: deque[bytes]) -> None:
    with contextlib.suppress(ValueError, OSError):
        lines.extend(stream)


def _with_root(path: str) -> str:
    """The places of modules that were given, and this checkout behind them."""
    return os.pathsep.join([*filter(None, path.split(os.pathsep)), str(ROOT)])


def run(command: Sequence[str], limit_s: float, environment: Mapping[str, str] | None = None) -> Run:
    """A command in a separate session, at most so long; nothing that it started is left, whatever happens."""
    # what ran before, a program that called this has started
    known = _children()
    kept: list[deque[bytes]] = [deque(maxlen=KEPT_LINES), deque(maxlen=KEPT_LINES)]
    readers: list[threading.Thread] = []
    process: subprocess.Popen[bytes] | None = None
    status: int | None = None
    left: list[str] = []
    # a signal may come as soon as the process runs, before it has its name here
    try:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": _with_root(os.environ.get("PYTHONPATH", "")), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
        for pair in zip((process.stdout, process.stderr), kept, strict=True):
            readers.append(threading.Thread(target=_keep, args=pair, daemon=True))
            readers[-1].start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(limit_s)
            psutil.wait_procs(_children(known), timeout=GRACE_S)
            left = [_describe(one) for one in _children(known)]
    finally:
        stuck = end_all(known)
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.0)
    for reader in readers:
        reader.join(GRACE_S)
    output, errors = (b"".join(lines.copy()).decode("utf-8", "replace") for lines in kept)
    return Run(status=status, output=output, errors=errors, left=left, stuck=stuck)


def run_step(step: Step, limit_s: float, before: Sequence[int | None]) -> Outcome:
    """What came of a step that may take so long; `before` is what each GPU held in bytes before the first one."""
    began = time.monotonic()
    try:
        done = run(step.command, limit_s, step.environment)
    finally:
        with _undisturbed():
            for command in step.undo:
                run(command, 60.0)
    state: State = "passed"
    result = Result()
    if done.status is None:
        state = "cut"
        last = _last(done.errors)
        said = f"; the last line of its errors{last}" if last else ""
        result.failures.append(f"{step.name} did not end within {limit_s:.0f} s, and its processes were ended{said}")
    else:
        try:
            result = step.judge(Ended(status=done.status, output=done.output, errors=done.errors))
        except (ValueError, KeyError, TypeError, OSError):
            result.failures.append(f"{step.name} ended with exit status {done.status}{_last(done.errors)}")
    wrong = [*result.failures, *(one.sentence() for one in result.comparisons if not one.is_right)]
    wrong += [f"{step.name} left a process running, which was ended: {who}" for who in done.left]
    wrong += [f"{who} cannot be killed: the kernel holds it, as it does while a driver hangs" for who in done.stuck]
    wrong += _left_on_cards(before)
    if wrong and state == "passed":
        state = "failed"
    return Outcome(
        step=step.name,
        state=state,
        seconds=round(time.monotonic() - began, 1),
        sentences=wrong,
        comparisons=result.comparisons,
        facts=result.facts,
        output=done.output if step.keeps_output else f"{done.output}{done.errors}"[-12_000:] if wrong else "",
    )


def _last(errors: str) -> str:
    line = error_line(errors)
    return f": {line}" if line else ""


def _left_on_cards(before: Sequence[int | None]) -> list[str]:
    """What each GPU still holds of a step that has ended."""
    until = time.monotonic() + SETTLE_S
    while True:
        now = held()
        grown = [
            (index, after - was)
            for index, (was, after) in enumerate(zip(before, now, strict=False))
            if was is not None and after is not None and after - was > LEFT_BYTES
        ]
        if not grown or time.monotonic() > until:
            return [
                f"GPU {index} still holds {more >> 20} MiB more than before the first step" for index, more in grown
            ]
        time.sleep(0.5)


def held() -> Sequence[int | None]:
    """Bytes in use on each GPU, as NVML says; () where it does not answer."""
    done = run([sys.executable, "-m", card.__name__, "held"], 30.0)
    return card.parse_held(done.output) if done.status == 0 else ()


def why_dead() -> str:
    """Why the GPUs no longer compute, '' where they do: asked in a separate process, after a step that failed."""
    done = run([sys.executable, "-m", card.__name__, "alive"], 90.0)
    if done.status is None:
        return "a kernel of one element did not end within 90 s"
    return "" if done.status == 0 else (_last(done.errors).removeprefix(": ") or f"exit status {done.status}")
