"""The steps for an Xid or SXid: NVIDIA's action for its number, as knowledge/xid.yaml describes it."""

from __future__ import annotations

from gpudoc.doctor.model import Advise
from gpudoc.doctor.remedies import advise, advise_recovery, take_steps
from gpudoc.knowledge.xids import Level, Xid, find_steps

__all__ = ["CONTAINED", "advise_for", "advise_recovery", "got_over"]


def _steps(action: str, then: str = "") -> Advise:
    """The steps of an action and of NVIDIA's follow-up action; the table is read on first use."""
    return lambda setting: take_steps((*find_steps(action, "now"), *find_steps(then, "later")), setting)


CONTAINED = _steps("contained")
got_over = _steps("got_over")


def advise_for(row: Xid | None, level: Level) -> Advise:
    """Steps for a number: those of its row or, without a row, those for the severity in the message."""
    if row is None:
        return advise("reset_fabric") if level == "fatal" else _steps("unknown")
    if row.code > 10_000 and row.action == "RESET_GPU":
        return _steps("reset_port")
    return _steps(row.action, row.then if row.then != row.action else "")
