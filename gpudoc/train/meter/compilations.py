"""What torch.compile compiled during a run: how often, for how long, which function, and why once more."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

from gpudoc.train.document import CompilationsDocument

# of the functions that were compiled again, so many are told
_MOST_TOLD = 5
_MOST_WORDS = 300
# where the update lives that an optimizer compiles for itself: torchao's 8-bit ones once for each shape of parameters
_OPTIMIZERS = ("/torch/optim/", "/torchao/optim/", "/torchao/prototype/low_bit_optim/")


class _Record(Protocol):
    """What torch keeps of one compilation (torch._dynamo.utils.CompilationMetrics)."""

    co_name: str | None
    co_filename: str | None
    co_firstlineno: int | None
    duration_us: int | None
    is_forward: bool | None
    recompile_reason: str | None


@dataclass(slots=True)
class Again:
    """A function that was compiled more than once: how often once more, and the newest reason."""

    place: str
    times: int = 0
    reason: str = ""


@dataclass(slots=True)
class Compilations:
    """Counts from when it is made, by torch's own records, which it makes anyway; they are read at log points only.

    torch keeps the newest 64 records: of more than that between two log points the first ones are not counted. What the
    optimizer compiles is counted in `of_optimizer` too, and does not count as a function that was compiled again.
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
        """Take in what was compiled since the last call; its seconds."""
        seconds = 0.0
        for record in self._fresh():
            seconds += (record.duration_us or 0) / 1e6
            if record.is_forward is False:
                # the second half of a function that is counted already
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
        """The function that was compiled most often once more, and why, in a clause; empty when none was."""
        most = max(self.again.values(), key=lambda one: one.times, default=None)
        return "" if most is None else f"{most.place} {most.times} more times, the last because {most.reason}"

    def document(self) -> CompilationsDocument:
        """Count, recompilations, those of the optimizer, seconds, and the functions that were compiled again, the most
        often first."""
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
        # a PyTorch that keeps no such records tells nothing of its compilations
        get = getattr(utils, "get_compilation_metrics", None)
        records = [] if get is None else cast("list[_Record]", get())
        if not records:
            return []
        last, self._last = self._last, records[-1]
        places = [number for number, record in enumerate(records) if record is last]
        return records[places[-1] + 1 :] if places else records


def _in_words(reason: str) -> str:
    """The failed guard without the way to it."""
    return " ".join(reason.split())[:_MOST_WORDS]
