"""The entry point for a new job: `launch` starts it, watches it once it trains, and waits for its end.

The job survives if gpudoc ends: it writes into files, runs in a separate session, and is never stopped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from types import FrameType

from gpudoc.errors import GpudocError
from gpudoc.facts.live import spy
from gpudoc.facts.live.session import Looking
from gpudoc.facts.live.spool import Spool
from gpudoc.facts.live.stillness import STILL_S, Stillness, look
from gpudoc.facts.live.target import check_system, is_python, loads_torch
from gpudoc.facts.live.tree import descendants, read_environment
from gpudoc.facts.model import Absent, Fact
from gpudoc.facts.process import Glance, Stacks, Watch
from gpudoc.frozen import dataclass
from gpudoc.own_files import script_arguments
from gpudoc.process.ending import end_process, signal_group
from gpudoc.process.lifetime import adopt_orphans, is_running
from gpudoc.progress import SILENT, Progress
from gpudoc.temporary import STDERR, STDOUT, TemporaryFolder

_LAUNCHER = pathlib.Path(__file__).with_name("launcher.py")
TICK_S = 0.1
# imports and building a model come first and give nothing to judge; after this long the watch begins anyway
LONGEST_START_S = 180.0
# without permission to look, the job counts as training this long after torch's library was loaded
BLIND_START_S = 8.0
LOOK_BEFORE_S = 1.0
# a watched job that then uses no CPU and moves no bytes for this long is looked at again; no checkpoint takes that long
IDLE_S, IDLE_LOOK_S, LOOK_AGAIN_S = 30.0, 5.0, 6.0
# warn if the output in the temporary folder reaches this size
WARN_BYTES = 1 << 30
_TRAINS = ("torch/autograd/graph.py", "torch/optim/", "torch/utils/data/dataloader.py")

Sink = Callable[[int, bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """How a launched command ended: its exit code or signal, the end of its output, and the watch.

    Code and signal are both None if another process adopted the command.
    `interrupted`: the user ended it with Ctrl+C, SIGTERM or SIGHUP, which is not a failure of the command.
    """

    exit_code: int | None
    signal: int | None
    log: str
    watch: Watch | None
    seconds: float
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """The callbacks for a launched job: `sink` gets its output (1 or 2, bytes), `watched` the finished watch, and
    `stalled` a second, short watch if the job has stood still for IDLE_S since then. `clear` names the cause that a
    short look shows beyond doubt, which ends the watch early; with None the watch runs to its end.
    """

    sink: Sink
    watched: Callable[[Watch], None]
    stalled: Callable[[Watch], None] = lambda _: None
    clear: Callable[[Watch], str] | None = None
    progress: Progress = SILENT


def launch(command: Sequence[str], *, seconds: float, listener: Listener) -> CommandOutcome:
    """Start `command`, watch it for `seconds` from its first training step, and wait until it ends.

    Ctrl+C, SIGTERM and, unless it is ignored, SIGHUP go to the command, once each. GpudocError if the command cannot
    be started.
    """
    check_system()
    began = time.monotonic()
    job = _Job(tuple(command), listener.sink, listener.progress.say)
    with _Signals(job):
        watched = None
        try:
            target = job.wait_until_it_trains(listener.progress)
            if target is not None:
                looking = Looking(
                    target, job.folder, seconds, recorder=job.record(target, seconds), clear=listener.clear
                )
                watched = _watch(job, looking, listener.progress)
            elif job.interrupted:
                watched = job.stood_still()
            if watched is not None:
                listener.watched(dataclasses.replace(watched, log=job.tail()))
        finally:
            job.let_go()
        code = job.wait(lambda: _look_again(job, listener))
    log = job.tail()
    job.tidy()
    killed_by = -code if code is not None and code < 0 else None
    return CommandOutcome(
        exit_code=None if killed_by else code,
        signal=killed_by,
        log=log,
        watch=watched,
        seconds=time.monotonic() - began,
        interrupted=job.interrupted,
    )


def _watch(job: _Job, looking: Looking, progress: Progress) -> Watch:
    while looking.goes_on() and not job.interrupted:
        looking.look()
        job.follow()
        progress.advance(min(looking.elapsed_s, looking.seconds), looking.seconds, "watching")
    looking.interrupted = job.interrupted
    before = job.stillness.seen
    was_still = before is not None and before.is_idle and before.seconds >= STILL_S
    return dataclasses.replace(looking.finish(), still_before_s=before.seconds if before and was_still else 0.0)


def _look_again(job: _Job, listener: Listener) -> None:
    """Briefly watch a job that has come to a standstill after its first watch."""
    target = next((pid for pid in descendants(job.pid) if is_python(pid)), None)
    if target is not None:
        again = job.folder / "again"
        again.mkdir()
        seen = _watch(job, Looking(target, again, LOOK_AGAIN_S), listener.progress)
        listener.stalled(dataclasses.replace(seen, log=job.tail()))


class _Signals:
    """Hands interrupts on to the job while it runs, each only once even if the sender signals twice."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._before: dict[int, object] = {}
        self._last: dict[int, float] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # under nohup a hangup is ignored
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._hand_on)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _hand_on(self, number: int, _: FrameType | None) -> None:
        # `timeout` signals its child and then its whole group: two signals for one wish
        now = time.monotonic()
        if now - self._last.get(number, -1.0) > 0.3:
            self._job.send(number)
        self._last[number] = now


@dataclass(slots=True)
class _Job:
    command: tuple[str, ...]
    sink: Sink
    say: Callable[[str], None]
    interrupted: bool = False
    stillness: Stillness = field(init=False, default_factory=Stillness)
    folder: pathlib.Path = field(init=False)
    pid: int = field(init=False)
    _launcher: subprocess.Popen[bytes] = field(init=False)
    _orders: int = field(init=False)
    _spools: dict[int, Spool] = field(init=False)
    _temporary: TemporaryFolder = field(init=False)
    _has_warned: bool = field(init=False, default=False)
    _stood: Watch | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        # so that this process can read the exit codes of processes that the job leaves behind
        adopt_orphans()
        self._temporary = TemporaryFolder("job")
        self.folder = self._temporary.path
        self._spools = {1: Spool(self.folder / STDOUT), 2: Spool(self.folder / STDERR)}
        orders, self._orders = os.pipe()
        answers, told = os.pipe()
        self._launcher = subprocess.Popen(
            [sys.executable, "-I", "-S", *script_arguments(_LAUNCHER), str(orders), str(told),
             str(self._spools[1].place), str(self._spools[2].place), *self.command],
            pass_fds=(orders, told), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        os.close(orders)
        os.close(told)
        with os.fdopen(answers, encoding="ascii") as lines:
            answer = lines.readline()
        if not answer.strip().isdecimal():
            os.close(self._orders)
            _, errors = self._launcher.communicate()
            self.tidy()
            reason = errors.decode("utf-8", "replace").strip() or self.command[0]
            raise GpudocError(f"cannot start the command: {reason}", hint="gpudoc doctor -- python train.py")
        self.pid = int(answer)

    def send(self, number: int) -> None:
        """Hand a signal on: a terminal's signal to the job's whole group, any other to its first process."""
        if not self.interrupted:
            # read the job's source while the job still exists
            self._stood = self._as_it_stands()
        self.interrupted = True
        if number in (signal.SIGINT, signal.SIGHUP):
            signal_group(self.pid, signal.Signals(number))
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def runs(self) -> bool:
        return is_running(self.pid)

    def follow(self) -> None:
        for number, spool in self._spools.items():
            spool.follow(functools.partial(self.sink, number))
            if spool.num_bytes_kept > WARN_BYTES and not self._has_warned:
                self._has_warned = True
                self.say(
                    f"! the output of the command fills {self.folder.parent}, which cannot free the part already read: "
                    f"{spool.cannot_free}; TMPDIR=/another/folder gpudoc doctor ... uses another folder"
                )

    def wait_until_it_trains(self, progress: Progress) -> int | None:
        """The Python process that trains, once its stack shows a training step or a standstill; None if the job ends
        before that."""
        began, loaded_s, looked_s = time.monotonic(), 0.0, 0.0
        program = spy.find()
        while self.runs() and not self.interrupted:
            self.follow()
            pids = descendants(self.pid)
            target = next((p for p in pids if is_python(p)), None)
            loaded = any(loads_torch(p) for p in pids)
            waited = time.monotonic() - began
            # with torch loaded the first step may come at any moment; without torch, only a standstill counts
            if target is not None and (loaded or waited - looked_s >= LOOK_BEFORE_S):
                loaded_s, looked_s = loaded_s or (waited if loaded else 0.0), waited
                looks = _look(program, _trainer(pids) or target) if isinstance(program, str) else None
                if looks is None:
                    if loaded and waited - loaded_s > BLIND_START_S:
                        return target
                elif any(map(_is_a_step, looks)) or self.stillness.takes(look(waited, pids, looks)):
                    return target
            if target is not None and waited > LONGEST_START_S:
                return target
            progress.advance(waited, LONGEST_START_S, "the command is starting; watching begins at its first step")
            time.sleep(TICK_S)
        return None

    def _as_it_stands(self) -> Watch | None:
        seen, target = self.stillness.seen, _trainer(descendants(self.pid))
        return seen.as_watch(target) if seen is not None and seen.is_telling and target is not None else None

    def stood_still(self) -> Watch | None:
        """The look at a job that stood still, unwatched, when it was asked to end; None if there is none."""
        return self._stood

    def record(self, pid: int, seconds: float) -> _AncestorRecorder:
        """Turn the launcher, which the job descends from, into the sampler of `pid`."""
        output = self.folder / "stacks.json"
        program = spy.find()
        if isinstance(program, str):
            command = spy.record_command(program, pid, output, seconds + 5)
            order = {"command": command, "messages": str(output.with_suffix(".err"))}
            os.write(self._orders, json.dumps(order).encode() + b"\n")
        return _AncestorRecorder(pid, self._launcher, output, program)

    def let_go(self) -> None:
        """End the launcher or sampler above the job, so that the job becomes this process's child."""
        try:
            os.close(self._orders)
        except OSError:
            return
        end_process(self._launcher, grace_s=1.0)
        if self._launcher.stderr is not None:
            self._launcher.stderr.close()

    def wait(self, stands_still: Callable[[], None]) -> int | None:
        """Follow the job to its end; returns its exit code, the negative number of a fatal signal, or None if unknown.

        `stands_still` is called once, when the job has used no CPU and moved no bytes for IDLE_S.
        """
        self.stillness, looked_s, is_told = Stillness(IDLE_S, with_stacks=False), time.monotonic(), False
        while True:
            self.follow()
            now = time.monotonic()
            if not is_told and not self.interrupted and now - looked_s >= IDLE_LOOK_S:
                looked_s = now
                if self.stillness.takes(look(now, descendants(self.pid), ())):
                    is_told = True
                    stands_still()
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                # another subreaper adopted the job: its end is visible, its code is not
                if not self.runs():
                    return None
                pid = 0
            if pid:
                self.follow()
                return os.waitstatus_to_exitcode(status)
            time.sleep(TICK_S)

    def tail(self) -> str:
        """The end of the job's output, stdout before stderr."""
        return "".join(spool.tail() for spool in self._spools.values())

    def tidy(self) -> None:
        """Remove the files and stop adopting orphans; called only when the job no longer writes into the files."""
        adopt_orphans(False)
        self._temporary.close()


@dataclass(slots=True)
class _AncestorRecorder:
    pid: int
    process: subprocess.Popen[bytes]
    output: pathlib.Path
    program: Fact[str]

    def finish(self) -> Fact[Stacks]:
        if isinstance(self.program, Absent):
            return self.program
        end_process(self.process, ask=signal.SIGINT, grace_s=spy.FINISH_S)
        return spy.read_recording(self.pid, self.output, self.output.with_suffix(".err"))


def _trainer(pids: Sequence[int]) -> int | None:
    """The Python process that trains: the first rank that a launcher such as torchrun started, else the first one.

    `py-spy dump --json` shows one process, and the launcher's process never shows a step.
    """
    pythons = [pid for pid in pids if is_python(pid)]
    return next((pid for pid in pythons if read_environment(pid, ("LOCAL_RANK",))), pythons[0] if pythons else None)


def _look(program: str, pid: int) -> list[Glance] | None:
    """The main thread of a process; empty if it was not seen this time, None if looking is not permitted."""
    try:
        done = subprocess.run(
            spy.dump_command(program, pid),
            capture_output=True,
            text=True,
            timeout=5,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode != 0:
        return None if "ptrace" in spy.explain_refusal(done.stderr, pid) else []
    return spy.parse_dump(done.stdout, 0.0)


def _is_a_step(glance: Glance) -> bool:
    # torch's files are on the stack while it is imported, too
    if any("importlib" in frame.file for frame in glance.frames):
        return False
    return any(mark in frame.file for frame in glance.frames for mark in _TRAINS)
