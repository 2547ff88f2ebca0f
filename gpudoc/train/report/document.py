"""What `gpudoc.train.v1` holds, for a config and for a command.

Format history: v1 (0.1.0) first released form; `status` "written", for a job that was written and not run, has no more
than its reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

Object = Mapping[str, object]


class EvaluatedLoss(TypedDict):
    """An evaluation; of the last one the figures that the data set gave stand next to these."""

    step: int
    loss: float | None


# `from`: flag, profile, config or default
SettingRow = TypedDict("SettingRow", {"value": object, "from": str})


class RunSummary(TypedDict):
    """What a run of a config came to: `summary.json`, and `gpudoc train --model cfg.yaml --json`."""

    schema: Literal["gpudoc.train.v1"]
    status: str
    reason: str
    exit_code: int
    name: str
    run_dir: str
    device: str
    world: int
    steps: int
    end_step: int
    samples: int
    first_loss: float | None
    final_loss: float | None
    evaluation: EvaluatedLoss | None
    best: EvaluatedLoss | None
    samples_per_s: float | None
    seconds: Mapping[str, float]
    share: Mapping[str, float]
    use: Object
    memory_peak_bytes: int
    memory: Object
    compilations: Object
    num_skipped: int
    rescues: Sequence[Object]
    hangs: Sequence[Object]
    ranks: Object | None
    resumed_from: str | None
    settings: Mapping[str, SettingRow]
    stages: Sequence[Object]
    verdict: str
    advice: Sequence[Object]
    go_on: str | None


class CommandEnd(TypedDict):
    """How a command ended: one of the two is null."""

    exit_code: int | None
    signal: int | None


class AppliedLoader(TypedDict):
    """What was set for one loader, and why a setting was not."""

    at: str
    key: str
    applied: Mapping[str, int | bool]
    refused: Mapping[str, str]
    notes: Sequence[str]


class _CommandSummary(TypedDict):
    schema: Literal["gpudoc.train.v1"]
    status: Literal["finished", "failed", "interrupted"]
    command: CommandEnd
    profile: str | None
    said: Sequence[str]
    elapsed_s: float
    steps: int | None
    ranks: int
    samples_per_s: float | None
    wait_share: float | None
    memory_peak_bytes: int | None
    seconds: Mapping[str, float] | None
    loaders: Sequence[AppliedLoader]
    errors: Sequence[Object]
    hangs: Sequence[Object]
    left: Sequence[str]
    stuck: Sequence[str]


class CommandSummary(_CommandSummary, total=False):
    """What a run of a script came to: `gpudoc train --json -- COMMAND`; `report` is doctor's where it died."""

    report: Object


class WrittenSummary(TypedDict):
    """The job was written to a file, and nothing ran here."""

    schema: Literal["gpudoc.train.v1"]
    status: Literal["written"]
    reason: str
