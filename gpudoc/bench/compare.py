"""Compares two records: records of different machines are refused, changes are judged by the stated intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpudoc.bench.assess import FEW
from gpudoc.bench.model import Measurement, Parameter, Record
from gpudoc.errors import GpudocError

# two records are comparable if these agree; software versions may differ, since they are often what is compared
HARD_KEYS = (
    "bench_version",
    "device",
    "gpu",
    "gpus",
    "capability",
    "gpu_memory_gib",
    "cpu",
    "threads",
    "memory_gib",
    "last_level_cache_bytes",
)
SOFT_KEYS = ("mode", "virtualised", "system", "kernel", "driver", "torch", "torch_cuda", "gpudoc")

Judgement = Literal["faster", "slower", "doubtful", "same", "not compared"]

# a row that was slower while other work ran says nothing about the machine
DISTURBANCES = frozenset({"busy_host", "stolen", "shared_gpu"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """One row in both records: `ratio` is new over old, None if either has no value."""

    row: Measurement
    old: Measurement
    ratio: float | None
    judgement: Judgement
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The rows in both records, the rows in only one, and the software that differs."""

    changes: tuple[RowChange, ...]
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]
    different: tuple[str, ...]

    @property
    def regressions(self) -> tuple[RowChange, ...]:
        """The rows that became slower by more than both intervals allow."""
        return tuple(change for change in self.changes if change.judgement == "slower")


def compare(old: Record, new: Record) -> Comparison:
    """Judge `new` against `old`; GpudocError (exit 2) with the first key in which the machines differ."""
    refuse_unlike(old.environment, new.environment)
    before_rows = {row.key: row for row in old.measurements}
    now_rows = {row.key: row for row in new.measurements}
    return Comparison(
        changes=tuple(judge(before_rows[key], row) for key, row in now_rows.items() if key in before_rows),
        only_old=tuple(key for key in before_rows if key not in now_rows),
        only_new=tuple(key for key in now_rows if key not in before_rows),
        different=tuple(_differences(old, new)),
    )


def refuse_unlike(old: Mapping[str, Parameter], new: Mapping[str, Parameter]) -> None:
    """Raise GpudocError (exit 2) with the first of HARD_KEYS in which two environments differ."""
    for key in HARD_KEYS:
        before, now = old.get(key, "not recorded"), new.get(key, "not recorded")
        if before != now:
            raise GpudocError(
                f"the records come from different machines: {key} was {before}, is {now}",
                hint="compare records of the same machine and the same gpudoc bench version",
            )


def _differences(old: Record, new: Record) -> Sequence[str]:
    return [
        f"{key} was {old.environment.get(key, 'not recorded')}, is {new.environment.get(key, 'not recorded')}"
        for key in SOFT_KEYS
        if old.environment.get(key) != new.environment.get(key)
    ]


def judge(old: Measurement, new: Measurement) -> RowChange:
    """Judge a row as slower or faster only if the two stated intervals do not touch; there is no fixed percentage.

    'doubtful' means slower while other work disturbed the new run: it is shown, but is not a regression.
    """
    if old.value is None or new.value is None or old.unit != new.unit or old.value <= 0:
        return RowChange(
            row=new, old=old, ratio=None, judgement="not compared", because="one of the two records has no value"
        )
    ratio = new.value / old.value
    if min(sum(len(one) for one in row.rounds) for row in (old, new)) < FEW:
        return RowChange(row=new, old=old, ratio=ratio, judgement="not compared", because="too few samples")
    if new.low <= old.high and new.high >= old.low:
        return RowChange(row=new, old=old, ratio=ratio, judgement="same")
    if (new.low > old.high) == (new.better == "higher"):
        return RowChange(row=new, old=old, ratio=ratio, judgement="faster")
    disturbed = [doubt.text for doubt in new.doubts if doubt.id in DISTURBANCES]
    judgement: Judgement = "doubtful" if disturbed else "slower"
    return RowChange(row=new, old=old, ratio=ratio, judgement=judgement, because="; ".join(disturbed))
