"""What the search asks the process that measures loaders, and what that answers: one message a line.

The first line is `Open`; then each `LoaderQuestion` gets one `LoaderAnswer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from gpudoc.tune.model.loader import LoaderCosts, LoaderSetting
from gpudoc.tune.trial.messages import Variant
from gpudoc.tune.trial.wire import Message
from gpudoc.workload.config import LoadedConfig


@dataclass(frozen=True, slots=True)
class LoaderRun:
    """One timed stretch of real steps: seconds per step, and to the first batch of a first and of a later epoch."""

    step_s: float
    steps: int
    wait_share: float
    start_s: float
    restart_s: float


class Open(Message):
    """The workload, and how the step that the loader feeds is run."""

    loaded: LoadedConfig
    batch_size: int
    device: str
    variant: Variant = Variant()


class AskCosts(Message):
    """What do a batch and a step cost?"""

    kind: Literal["costs"] = "costs"
    seconds: float


class AskRun(Message):
    """How fast are steps with this loader? `period_s` is the expected time of one."""

    kind: Literal["run"] = "run"
    setting: LoaderSetting
    seconds: float
    period_s: float


class LoaderQuestion(Message):
    """One question to the process that measures."""

    asks: Annotated[AskCosts | AskRun, Field(discriminator="kind")]


class Opened(Message):
    """The workload is built; `batch_size` is at most the number of samples."""

    kind: Literal["opened"] = "opened"
    num_samples: int
    batch_size: int


class Costs(Message):
    """The answer to `AskCosts`."""

    kind: Literal["costs"] = "costs"
    costs: LoaderCosts


class Ran(Message):
    """The answer to `AskRun`."""

    kind: Literal["ran"] = "ran"
    run: LoaderRun


class LoaderFailure(Message):
    """What the user's code raised: the last line says what, the traceback where."""

    kind: Literal["failure"] = "failure"
    failure: str
    traceback: str


class LoaderAnswer(Message):
    """One answer of the process that measures."""

    says: Annotated[Opened | Costs | Ran | LoaderFailure, Field(discriminator="kind")]
