"""What Xid and SXid numbers of the kernel log mean; an unknown number has no meaning here rather than a guessed one."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal, cast

from gpudoc.knowledge.tables import read_table

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

    `action` and `then` are NVIDIA's names for what to do at once and afterwards; 'unknown' where it names nothing.
    `cause` is the id of the finding, '' for none narrower than the number itself.
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


@functools.cache
def _table(section: str) -> dict[int, Xid]:
    rows = read_table("xid.yaml", section)
    return {
        int(str(row["code"])): Xid(
            code=int(str(row["code"])),
            name=str(row["name"]),
            kind=cast(Kind, row["kind"]),
            severity=cast(Level, row["severity"]),
            action=str(row["action"]),
            meaning=str(row["meaning"]),
            then=str(row.get("then", "")),
            cause=str(row.get("cause", "")),
        )
        for row in rows
    }
