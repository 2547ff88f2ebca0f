"""What Xid and SXid numbers of the kernel log mean; an unknown number gets no guessed meaning."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal, cast

from gpudoc.frozen import dataclass
from gpudoc.knowledge.tables import Row, read_rows, read_table

Kind = Literal[
    "application",
    "driver",
    "firmware",
    "memory",
    "hardware",
    "bus",
    "link",
    "power",
    "notice",
    "undecided",
    "unused",
]
Level = Literal["fatal", "error", "warning", "notice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One number of a GPU (Xid) or an NVSwitch (SXid): whose fault it is, how bad, and what NVIDIA asks for.

    `action` and `then` are NVIDIA's names for what to do at once and afterwards; 'unknown' if it names nothing.
    `cause` is the id of the finding, '' if there is none narrower than the number itself.
    """

    code: int
    name: str
    kind: Kind
    severity: Level
    action: str
    meaning: str
    then: str = ""
    cause: str = ""


def find_xid(code: int) -> Xid | None:
    """The meaning of a GPU's number, or None when the table does not know it."""
    return _table("xids").get(code)


def find_sxid(code: int) -> Xid | None:
    """The meaning of an NVSwitch's number, or None when the table does not know it."""
    return _table("sxids").get(code)


def all_xids() -> tuple[Xid, ...]:
    """Every row of the GPU's numbers, ascending."""
    return tuple(_table("xids").values())


def all_sxids() -> tuple[Xid, ...]:
    """Every row of the NVSwitch's numbers, ascending."""
    return tuple(_table("sxids").values())


def find_steps(action: str, when: Literal["now", "later"]) -> Sequence[object]:
    """The steps of an action at once or afterwards, in the form of a cause's row; empty for an action without any."""
    return cast(Sequence[object], _steps().get(action, {}).get(when, ()))


@functools.cache
def _steps() -> dict[str, Row]:
    return {str(row["action"]): row for row in read_table("xid.yaml", "steps")}


@functools.cache
def _table(section: str) -> dict[int, Xid]:
    return {row.code: row for row in read_rows("xid.yaml", section, Xid)}
