"""What an Xid number in the kernel log means; an unknown number has no meaning here rather than a guessed one."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal, cast

from gpudoc.knowledge.tables import read_table

Kind = Literal["application", "memory", "hardware", "bus", "link", "firmware", "notice"]
Action = Literal["application", "reset", "reboot", "replace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One Xid: its meaning in a sentence, what it calls for, and the cause it points to ('' for none by itself)."""

    code: int
    kind: Kind
    action: Action
    meaning: str
    cause: str = ""


def find_xid(code: int) -> Xid | None:
    """The meaning of one number, or None when the table does not know it."""
    return _xids().get(code)


@functools.cache
def _xids() -> dict[int, Xid]:
    rows = read_table("xid.yaml", "xids")
    return {
        int(str(row["code"])): Xid(
            code=int(str(row["code"])),
            kind=cast(Kind, row["kind"]),
            action=cast(Action, row["action"]),
            meaning=str(row["meaning"]),
            cause=str(row.get("cause", "")),
        )
        for row in rows
    }
