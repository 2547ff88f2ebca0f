"""The events of a training: a stream of frozen objects. Only `Said` is text for a screen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Union

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.train.document import RescueRow, RunSummary

if TYPE_CHECKING:
    # a watcher of a run need not import torch
    from gpudoc.train.meter.meters import Split
    from gpudoc.train.ranks.pace import Slow
    from gpudoc.train.settings import TrainSettings

# the phases of training time. "host": the GPU was idle because Python was late with its work; "compile":
# torch.compile was at work
PHASES = (
    *("data_wait", "transfer", "compute", "communicate", "host", "compile"),
    *("checkpoint", "evaluate", "other"),
)


class NothingLearnedError(GpudocError):
    """A run that made no step: there is nothing to continue from."""


@dataclass(frozen=True, slots=True)
class Said:
    """One sentence for the user; `warning` if it concerns a change of the result or the speed."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Everything is built and training begins at `step`. A stream without a length has neither samples nor epochs."""

    name: str
    run_dir: Path
    device: str
    settings: TrainSettings
    num_parameters: int
    num_samples: int | None
    steps_per_epoch: int | None
    step: int
    end_step: int
    world: int
    resumed_from: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """A logged step: figures over the steps since the last one. `loss` is the mean of the finite losses."""

    step: int
    end_step: int
    epoch: float | None
    samples: int
    loss: float
    lr: float
    samples_per_s: float
    split: Split
    memory_peak_bytes: int
    grad_norm: float | None
    scale: float | None
    num_skipped: int
    # the known ones of tokens_per_s, model_tflops, mfu, hfu
    use: Mapping[str, float] = field(default_factory=dict)
    slow: Slow | None = None

    def document(self) -> dict[str, object]:
        """The step as one object of metrics.jsonl."""
        found: dict[str, object] = {
            "step": self.step,
            "samples": self.samples,
            "loss": self.loss,
            "lr": self.lr,
            "samples_per_s": self.samples_per_s,
            "seconds": dict(self.split.seconds),
            "memory_peak_bytes": self.memory_peak_bytes,
            "grad_norm": self.grad_norm,
            "scale": self.scale,
            **self.use,
        }
        if self.slow is not None:
            found["slow"] = self.slow.document()
        return {**found, "skipped": self.num_skipped} if self.num_skipped else found


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The eval set's mean loss after `step`, and the data set's figures for it."""

    step: int
    loss: float
    figures: Mapping[str, float] = field(default_factory=dict)
    num_samples: int
    seconds: float
    best: bool

    def document(self) -> dict[str, object]:
        """The evaluation as one object of metrics.jsonl."""
        return {"step": self.step, "eval": {"loss": self.loss, **self.figures, "samples": self.num_samples}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint is complete on disk; `seconds` is the time of writing, but steps waited only for the copy."""

    step: int
    path: Path
    num_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescued:
    """Memory ran out at `step`; it was undone and repeated with a smaller micro batch and the same global batch."""

    step: int
    from_batch: int
    to_batch: int
    phase: Literal["train", "evaluate"]
    shapes: str
    activation_checkpointing: bool = False

    def document(self) -> RescueRow:
        """The rescue as an object of metrics.jsonl and summary.json."""
        return {
            "step": self.step,
            "rescue": {
                "from_batch": self.from_batch,
                "to_batch": self.to_batch,
                "phase": self.phase,
                "shapes": self.shapes,
                "activation_checkpointing": self.activation_checkpointing,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Hung:
    """The run made no progress for `still_s` in `step`; a step usually takes `usual_s`, None if unknown.

    `ranks` are the ranks that the others wait for, empty if unknown; `call` is the collective in which they wait and
    its number, `at` the user's line, each '' if there is none. `stacks` has a line for each rank.
    """

    step: int
    still_s: float
    usual_s: float | None
    ranks: tuple[int, ...]
    call: str
    at: str
    say: str
    stacks: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        """The same as an object of metrics.jsonl and summary.json."""
        return {
            "step": self.step,
            "hang": {
                "still_s": round(self.still_s, 1),
                "usual_s": self.usual_s,
                "ranks": list(self.ranks),
                "call": self.call,
                "at": self.at,
                "say": self.say,
                "stacks": list(self.stacks),
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The end of any kind: the summary document, and the command to continue, None if there is nothing to continue."""

    summary: RunSummary
    exit_code: ExitCode
    reason: str
    go_on: str | None


Event = Union[Said, Started, Progressed, Evaluated, Saved, Rescued, Hung, Finished]
