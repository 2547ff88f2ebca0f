"""The parent's end of a fork server: start it, talk to it, and report its failures."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import socket
import subprocess
from collections import deque
from pathlib import Path

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process import openmp
from gpudoc.process.allocator import missing_environment
from gpudoc.process.ending import end_family, how_it_ended
from gpudoc.tune.trial.deadline import Deadline, TimeUpError
from gpudoc.tune.trial.messages import Trial, Variant
from gpudoc.tune.trial.sweep import PROCESSES
from gpudoc.tune.trial.wire import GO_ON, Envelope, Failed, Ready, TrialStart, command, receive, send

START_SECONDS = 300.0
POLL_SECONDS = 0.25
_NUMBERS = itertools.count(1)


class ForkServerDiedError(Exception):
    """The fork server ended on its own."""


def environment_of(variant: Variant) -> dict[str, str]:
    """The environment of a process whose steps run with this variant: this process's, plus the variant's variables."""
    needed = {**missing_environment(variant.allocator), **openmp.missing_environment(variant.wait_policy)}
    return {**os.environ, **needed}


class ForkServerProcess:
    """A fork server with the environment of one variant's allocator and wait policy.

    It imports PyTorch at once; `ready` lets it continue with the workload and waits for that. The whole search waits
    for the first server; a later one may take at most a share of the time that is left.
    """

    def __init__(
        self, source: str, variant: Variant, folder: Path, deadline: Deadline | None = None, *, is_first: bool = True
    ) -> None:
        self._source = source
        self._deadline = deadline or Deadline()
        self._is_first = is_first
        self._log = folder / f"server-{'-'.join(variant.environment)}-{next(_NUMBERS)}.log"
        self._inbox: dict[int | None, deque[Envelope]] = {}
        self._environment = {**environment_of(variant), "TMPDIR": str(folder), PROCESSES: str(folder)}
        self._environment["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        self._process, self._channel = self._start("main")

    @functools.cached_property
    def ready(self) -> Ready:
        """Its message that it can start trials; waits for it; GpudocError if the user's code fails."""
        try:
            with contextlib.suppress(OSError):
                # a server that has died already reports it when an answer is awaited
                self._channel.send(GO_ON)
            ready = self._await_ready()
        except BaseException:
            self.close()
            raise
        if ready.no_fork:
            self.close()
            self._process, self._channel = self._start("serve")
        return ready

    def _start(self, function: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
        """A process that runs `function` of the fork server, and the channel to it."""
        own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, self._log.open("ab") as log:
            process = subprocess.Popen(
                command(f"{function}({theirs.fileno()}, {self._source!r}, {os.getpid()})"),
                env=self._environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return process, own

    def _await_ready(self) -> Ready:
        patience_s = self._deadline.patience_s(START_SECONDS, START_SECONDS if self._is_first else 0.0)
        began = self._deadline.clock()
        while self._deadline.clock() - began < patience_s:
            told = self.receive(None, POLL_SECONDS)
            match told and told.event:
                case Ready() as ready:
                    return ready
                case Failed() as failed:
                    raise _user_error(failed)
        if patience_s < START_SECONDS:
            raise TimeUpError(f"the workload was not imported when {self._deadline.told}", hint=self._deadline.hint)
        raise GpudocError(
            f"importing the workload took longer than {START_SECONDS:.0f} s", hint="import less at module level"
        )

    def send(self, order: TrialStart) -> None:
        """Ask for a trial's processes."""
        try:
            send(self._channel, order)
        except OSError as problem:
            raise ForkServerDiedError(self.last_words()) from problem

    def receive(self, trial: int | None, timeout_s: float) -> Envelope | None:
        """The next message about a trial (None: about the fork server), or None after `timeout_s`."""
        inbox = self._inbox.setdefault(trial, deque())
        if inbox:
            return inbox.popleft()
        self._channel.settimeout(timeout_s)
        try:
            told = receive(self._channel, Envelope, f"a trial, or the fork server (pid {self._process.pid})")
        except TimeoutError:
            return None
        except OSError as problem:
            raise ForkServerDiedError(self.last_words()) from problem
        if told is None:
            raise ForkServerDiedError(self.last_words())
        if told.trial == trial:
            return told
        self._inbox.setdefault(told.trial, deque()).append(told)
        return None

    def last_words(self) -> str:
        """How the process ended, and its last line of output."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        last = text.strip().splitlines()[-1] if text.strip() else "no output"
        return f"{how_it_ended(self._process.returncode)}: {last}"

    def close(self) -> None:
        """End the fork server and everything it started."""
        self._channel.close()
        end_family(self._process, grace_s=2.0)


def trial_error(trial: Trial) -> GpudocError:
    """The error for the user if their own code failed in a trial: the message, its place, their traceback."""
    if not trial.traceback:
        return GpudocError(trial.detail or trial.end.value, hint=trial.hint, exit_code=ExitCode(trial.exit_code))
    batch = f" at batch {trial.failed_batch}" if trial.failed_batch else ""
    text = f"the training step failed on its own{batch}, in {trial.stage}: {trial.detail}\n\n"
    return GpudocError(
        text + users_traceback(trial.traceback),
        hint="fix that first; nothing was written",
        exit_code=ExitCode.BAD_ANSWER,
    )


def users_traceback(text: str) -> str:
    """A traceback under a heading that says whose it is."""
    return text.rstrip().replace(
        "Traceback (most recent call last):", "Traceback (most recent call last) of your code:"
    )


def _user_error(failed: Failed) -> GpudocError:
    trace = f"\n\n{users_traceback(failed.traceback)}" if failed.traceback else ""
    return GpudocError(failed.message + trace, hint=failed.hint)
