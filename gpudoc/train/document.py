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


class ModuleMemory(TypedDict):
    """What a module keeps for the backward."""

    module: str
    bytes: int


class MemorySeen(TypedDict, total=False):
    """The highest moment of the step that was watched; `because` alone where none was, or why a part is not known."""

    step: int
    peak_bytes: int
    bytes: Mapping[str, int]
    activations: Sequence[ModuleMemory]
    reserved_bytes: int | None
    fragmentation_bytes: int
    because: str


class Recompiled(TypedDict):
    """A function that torch.compile compiled once more, and the guard that failed most recently."""

    function: str
    times: int
    reason: str


class CompilationsDocument(TypedDict):
    """What torch.compile did in the run."""

    count: int
    recompilations: int
    of_optimizer: int
    seconds: float
    again: Sequence[Recompiled]


class RescueRow(TypedDict):
    """Memory that ran out in a step, which was repeated with a smaller micro batch."""

    step: int
    rescue: Object


class AdviceGain(TypedDict):
    """How many times as fast the run becomes."""

    at_least: float
    at_most: float


class _Advice(TypedDict):
    say: str
    run: str


class AdviceRow(_Advice, total=False):
    """What to do next; `run` is '' where no command helps."""

    gain: AdviceGain


class _Stage(TypedDict):
    name: str
    status: str
    seconds: float
    device: str | None
    memory_peak_bytes: int | None


class StageRow(_Stage, total=False):
    """A part of the run; `because` says why it was left out."""

    because: str


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
    use: Mapping[str, float | str | None]
    memory_peak_bytes: int
    memory: MemorySeen
    compilations: CompilationsDocument
    num_skipped: int
    rescues: Sequence[RescueRow]
    hangs: Sequence[Object]
    ranks: Object | None
    resumed_from: str | None
    settings: Mapping[str, SettingRow]
    stages: Sequence[StageRow]
    verdict: str
    advice: Sequence[AdviceRow]
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
