"""A conversation with the process that measures loaders, which is restarted if it dies."""

from __future__ import annotations

import os
from types import TracebackType

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.arguments import own_python
from gpudoc.process.conversation import Conversation
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

    `hangs`: fewer workers may answer. `is_late`: there was no time for the question or for its answer.
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
        self._child: Conversation | None = None
        self.num_samples = 0
        self.batch_size = asked.batch_size

    def __enter__(self) -> LoaderSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def costs(self, seconds: float) -> LoaderCosts:
        """The costs of a batch and a step; GpudocError with the user's own traceback if the workload fails.

        MeasurementError if the time is over.
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
        """Run real steps with this loader for about `seconds`; MeasurementError if there is no figure."""
        usual_s = RUN_GRACE_SECONDS + 20 * (seconds + (setting.batches_ahead + 20) * period_s)
        needed_s = seconds + (WARM_STEPS + setting.num_workers) * period_s
        answer = self._ask(AskRun(setting=setting, seconds=seconds, period_s=period_s), usual_s, needed_s)
        assert isinstance(answer, Ran)
        return answer.run

    def close(self) -> None:
        """End the process and all its children."""
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def _ask(self, asks: AskCosts | AskRun, usual_s: float, needed_s: float = START_SECONDS) -> Opened | Costs | Ran:
        if self._child is None:
            if self._start_s > self._deadline.left_s:
                raise MeasurementError("no time was left to restart", is_late=True)
            self._start()
        return self._exchange(LoaderQuestion(asks=asks), usual_s, needed_s)

    def _start(self) -> None:
        self._child = Conversation(own_python(_CHILD.format(os.getpid())), environment_of(self._order.variant))
        began = self._deadline.clock()
        try:
            # everything else waits for the first start; a later start follows a hang, and takes as long as the first
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
        child = self._child
        assert child is not None
        child.say(encode(message))
        try:
            line = child.hear(patience_s)
        except TimeoutError:
            self.close()
            is_late = not self._deadline.left_s
            raise MeasurementError(f"no answer within {patience_s:.0f} s", hangs=not is_late, is_late=is_late) from None
        if line is None:
            how, complaint = child.last_words()
            self.close()
            raise MeasurementError(f"the measuring process {how}" + (f" ({complaint})" if complaint else ""))
        says = decode(LoaderAnswer, line, f"the process that measures loaders (pid {child.process.pid})").says
        if isinstance(says, LoaderFailure):
            raise MeasurementError(says.failure, says.traceback)
        return says

    def _as_user_error(self, problem: MeasurementError) -> GpudocError:
        self.close()
        hint = problem.traceback or "run it with num_workers=0 to see where it fails"
        return GpudocError(f"the loader could not be measured: {problem}", hint=hint, exit_code=ExitCode.BAD_ANSWER)
