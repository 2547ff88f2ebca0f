"""Which causes are ruled out: of a text those whose facts it really held, as a text that is silent proves nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpudoc.doctor.model import Cause, Skipped
from gpudoc.doctor.signatures import small_shares
from gpudoc.facts.model import Absent, Machine, fact_at
from gpudoc.facts.readers.model import Text
from gpudoc.knowledge.cause_rows import facts_asked_for, ruled_out_by


def ruled_out(machine: Machine, unsettled: Collection[str]) -> tuple[str, ...]:
    """The causes that the facts of a text rule out; none of `unsettled`, which were found or could not be judged."""
    return tuple(
        cause
        for cause, paths in ruled_out_by().items()
        if cause not in unsettled and all(_held(machine, path.split(".")) for path in paths)
    )


def too_small(text: Text, catalogue: Mapping[str, Cause]) -> set[str]:
    """The causes that take hardly any of the time by figures of the text, with those that would show as one of them."""
    small = small_shares(text)
    return small | {cause.id for cause in catalogue.values() if small.intersection(cause.explains)}


def not_asked(machine: Machine, passed: Collection[str]) -> tuple[Skipped, ...]:
    """Those of the causes that passed only because Windows and macOS cannot be asked; none on Linux."""
    if machine.host.system not in ("Windows", "Darwin"):
        return ()
    asked = facts_asked_for()
    missing = ((cause, path, fact_at(machine, path)) for cause in passed if (path := asked.get(cause)) is not None)
    return tuple(Skipped(cause, f"{path}: {f.reason}") for cause, path, f in missing if isinstance(f, Absent))


def _held(whole: object, path: list[str]) -> bool:
    """Whether the fact at `path` is there, for each member of a list on the way."""
    if isinstance(whole, Absent):
        return False
    if isinstance(whole, tuple):
        return bool(whole) and (not path or all(_held(member, path) for member in whole))
    return True if not path else _held(getattr(whole, path[0]), path[1:])
