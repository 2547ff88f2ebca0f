"""The compilations of torch.compile during a run: number, time, functions, and reasons of recompilations."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

from gpudoc.train.document import CompilationsDocument

# the most recompiled functions in a report
_MOST_TOLD = 5
_MOST_WORDS = 300
# the packages of optimizers that compile their own update: torchao's 8-bit ones do so for each shape of parameters
_OPTIMIZERS = ("/torch/optim/", "/torchao/optim/", "/torchao/prototype/low_bit_optim/")


class _Record(Protocol):
    """Torch's record of one compilation (torch._dynamo.utils.CompilationMetrics)."""

    co_name: str | None
    co_filename: str | None
    co_firstlineno: int | None
    duration_us: int | None
    is_forward: bool | None
    recompile_reason: str | None


@dataclass(slots=True)
class Again:
    """A function that was compiled more than once: the number of recompilations, and the newest reason."""

    place: str
    times: int = 0
    reason: str = ""


@dataclass(slots=True)
class Compilations:
    """Counts compilations from its creation on, from torch's own records; reads them only at log points.

    torch keeps the newest 64 records: if there are more between two log points, the first ones are not counted. The
    optimizer's compilations are also counted in `of_optimizer`, but do not count as recompiled functions.
    """

    count: int = 0
    seconds: float = 0.0
    of_optimizer: int = 0
    again: dict[str, Again] = field(default_factory=dict)
    _last: object = None

    def __post_init__(self) -> None:
        # a notebook may have trained before in this process
        self._fresh()

    def read(self) -> float:
        """Add the compilations since the last call; returns their seconds."""
        seconds = 0.0
        for record in self._fresh():
            seconds += (record.duration_us or 0) / 1e6
            if record.is_forward is False:
                # the second half of a function that is already counted
                continue
            self.count += 1
            if any(place in (record.co_filename or "") for place in _OPTIMIZERS):
                self.of_optimizer += 1
            elif record.recompile_reason:
                place = f"{record.co_name} ({Path(record.co_filename or '?').name}:{record.co_firstlineno})"
                found = self.again.setdefault(place, Again(place))
                found.times += 1
                found.reason = _in_words(record.recompile_reason)
        self.seconds += seconds
        return seconds

    def worst(self) -> str:
        """A clause about the function that was recompiled most often, with the reason; empty if there is none."""
        most = max(self.again.values(), key=lambda one: one.times, default=None)
        return "" if most is None else f"{most.place} {most.times} more times, the last because {most.reason}"

    def document(self) -> CompilationsDocument:
        """Count, recompilations, those of the optimizer, seconds, and the recompiled functions, the most frequent
        first."""
        told = sorted(self.again.values(), key=lambda one: -one.times)[:_MOST_TOLD]
        return {
            "count": self.count,
            "recompilations": sum(one.times for one in self.again.values()),
            "of_optimizer": self.of_optimizer,
            "seconds": round(self.seconds, 3),
            "again": [{"function": one.place, "times": one.times, "reason": one.reason} for one in told],
        }

    def _fresh(self) -> list[_Record]:
        utils = sys.modules.get("torch._dynamo.utils")
        # without such records the compilations of this PyTorch are unknown
        get = getattr(utils, "get_compilation_metrics", None)
        records = [] if get is None else cast("list[_Record]", get())
        if not records:
            return []
        last, self._last = self._last, records[-1]
        places = [number for number, record in enumerate(records) if record is last]
        return records[places[-1] + 1 :] if places else records


def _in_words(reason: str) -> str:
    """The reason in one line of at most _MOST_WORDS characters."""
    return " ".join(reason.split())[:_MOST_WORDS]
