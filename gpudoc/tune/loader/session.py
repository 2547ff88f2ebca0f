"""A conversation with the process that measures loaders, started again when it dies."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import tempfile
from types import TracebackType
from typing import IO

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.arguments import own_python
from gpudoc.process.ending import end_family, how_it_ended
from gpudoc.tune.loader.messages import (
    AskCosts,
    AskRun,
    Costs,
    LoaderAnswer,
    LoaderFailure,
    LoaderQuestion,
    LoaderRun,
    Open,
    Opened,
    Ran,
)
from gpudoc.tune.model.loader import WARM_STEPS, LoaderCosts, LoaderSetting
from gpudoc.tune.trial.deadline import Deadline
from gpudoc.tune.trial.fork_client import environment_of
from gpudoc.tune.trial.wire import Message, decode, encode

_CHILD = (
    "import gc; gc.disable(); from gpudoc.tune.loader.child import main; gc.enable(); sys.exit(main(sys.stdin, {}))"
)
START_SECONDS = 300.0
RUN_GRACE_SECONDS = 60.0


class MeasurementError(Exception):
    """One question got no figure: the process died, hung, or the user's code raised.

    `hangs`: fewer workers may answer. `is_late`: it was not asked, or could not answer, for want of time.
    """

    def __init__(self, message: str, traceback: str = "", *, hangs: bool = False, is_late: bool = False) -> None:
        super().__init__(message)
        self.traceback = traceback
        self.hangs = hangs
        self.is_late = is_late


class LoaderSession:
    """Asks a fresh process for figures; use as a context manager, which leaves no process behind."""

    def __init__(self, asked: Open, *, deadline: Deadline | None = None) -> None:
        self._deadline = deadline or Deadline()
        self._start_s = 0.0
        self._order = asked
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints: IO[bytes] | None = None
        self._buffer = b""
        self.num_samples = 0
        self.batch_size = asked.batch_size

    def __enter__(self) -> LoaderSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def costs(self, seconds: float) -> LoaderCosts:
        """What a batch and a step cost; GpudocError with the user's own traceback when the workload fails.

        MeasurementError where the time is over.
        """
        try:
            answer = self._ask(AskCosts(seconds=seconds), START_SECONDS)
        except MeasurementError as problem:
            if problem.is_late:
                raise
            raise self._as_user_error(problem) from None
        assert isinstance(answer, Costs)
        return answer.costs

    def run(self, setting: LoaderSetting, *, seconds: float, period_s: float) -> LoaderRun:
        """Real steps with this loader for about that long; MeasurementError when there is no figure."""
        usual_s = RUN_GRACE_SECONDS + 20 * (seconds + (setting.batches_ahead + 20) * period_s)
        needed_s = seconds + (WARM_STEPS + setting.num_workers) * period_s
        answer = self._ask(AskRun(setting=setting, seconds=seconds, period_s=period_s), usual_s, needed_s)
        assert isinstance(answer, Ran)
        return answer.run

    def close(self) -> None:
        """End the process and all that it started."""
        process, self._process = self._process, None
        if process is not None:
            end_family(process)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        if self._complaints is not None:
            self._complaints.close()
            self._complaints = None
        self._buffer = b""

    def _ask(self, asks: AskCosts | AskRun, usual_s: float, needed_s: float = START_SECONDS) -> Opened | Costs | Ran:
        if self._process is None:
            if self._start_s > self._deadline.left_s:
                raise MeasurementError("no time was left to restart", is_late=True)
            self._start()
        return self._exchange(LoaderQuestion(asks=asks), usual_s, needed_s)

    def _start(self) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - read when the process died, closed in close()
        self._process = subprocess.Popen(
            own_python(_CHILD.format(os.getpid())),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=environment_of(self._order.variant),
            start_new_session=True,
        )
        began = self._deadline.clock()
        try:
            # everything else waits for the first start; a later one follows a hang, and is as long as that was
            opened = self._exchange(self._order, START_SECONDS)
        except MeasurementError as problem:
            if problem.is_late:
                raise
            raise self._as_user_error(problem) from None
        self._start_s = self._deadline.clock() - began
        assert isinstance(opened, Opened)
        self.num_samples, self.batch_size = opened.num_samples, opened.batch_size

    def _exchange(self, message: Message, usual_s: float, needed_s: float = START_SECONDS) -> Opened | Costs | Ran:
        patience_s = self._deadline.patience_s(usual_s, needed_s)
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(encode(message) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death() from None
        sender = f"the process that measures loaders (pid {self._process.pid})"
        says = decode(LoaderAnswer, self._read_line(self._process, patience_s), sender).says
        if isinstance(says, LoaderFailure):
            raise MeasurementError(says.failure, says.traceback)
        return says

    def _read_line(self, process: subprocess.Popen[bytes], patience_s: float) -> bytes:
        """One line of the reply; a dead process is noticed though its loader workers still hold the pipe."""
        assert process.stdout is not None
        until = self._deadline.clock() + patience_s
        while b"\n" not in self._buffer:
            if select.select([process.stdout], [], [], 0.2)[0]:
                piece = os.read(process.stdout.fileno(), 1 << 16)
                if not piece:
                    raise self._death()
                self._buffer += piece
            elif process.poll() is not None:
                raise self._death()
            elif self._deadline.clock() > until:
                self.close()
                is_late = not self._deadline.left_s
                raise MeasurementError(f"no answer within {patience_s:.0f} s", hangs=not is_late, is_late=is_late)
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _death(self) -> MeasurementError:
        assert self._process is not None
        try:
            status = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            status = 0
        complaint = self._last_complaint()
        self.close()
        return MeasurementError(f"the measuring process {how_it_ended(status)}{complaint}")

    def _last_complaint(self) -> str:
        if self._complaints is None:
            return ""
        self._complaints.seek(0)
        lines = self._complaints.read().decode("utf-8", "replace").strip().splitlines()
        return f" ({lines[-1]})" if lines else ""

    def _as_user_error(self, problem: MeasurementError) -> GpudocError:
        self.close()
        hint = problem.traceback or "run it with num_workers=0 to see where it fails"
        return GpudocError(f"the loader could not be measured: {problem}", hint=hint, exit_code=ExitCode.BAD_ANSWER)
