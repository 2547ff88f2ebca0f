"""The search's questions to the process that measures loaders, and its answers: one message per line.

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
    """The workload, and the settings of the step that the loader feeds."""

    loaded: LoadedConfig
    batch_size: int
    device: str
    variant: Variant = Variant()


class AskCosts(Message):
    """Asks for the costs of a batch and a step."""

    kind: Literal["costs"] = "costs"
    seconds: float


class AskRun(Message):
    """Asks for the speed of steps with this loader; `period_s` is the expected time of one step."""

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
    """An exception of the user's code: the last line of its message, and the traceback."""

    kind: Literal["failure"] = "failure"
    failure: str
    traceback: str


class LoaderAnswer(Message):
    """One answer of the process that measures."""

    says: Annotated[Opened | Costs | Ran | LoaderFailure, Field(discriminator="kind")]
