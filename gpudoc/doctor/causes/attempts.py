"""Judge a many-rank job's end by its kind alone, if no line of the first rank says why it ended."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.model import Evidence, Finder, Finding, Observation, Skip, observe
from gpudoc.doctor.ranks import rank_rows
from gpudoc.units import format_ranks

# only how the rank ended is known, not why: a line that says why counts more
_SURE = 0.7
_MOST_FOLLOWERS = 3


def _find(evidence: Evidence) -> Iterator[Finding | Skip]:
    end = evidence.end
    if end is None or not (end.is_known or end.kind == "stop"):
        return
    cause = rank_rows().kinds[end.kind].cause or (end.lead.row.cause if end.lead is not None else "")
    if not cause:
        return
    seen = [observe("first", end.text, end.origin)] if end.text else []
    for one in end.followers[:_MOST_FOLLOWERS]:
        seen.append(Observation("others", f"{format_ranks(one.ranks)} {one.says}", one.origin))
    yield Finding(id=cause, confidence=_SURE, evidence=tuple(seen))


FINDERS = (Finder(id="rank_ended", find=_find, reads="text"),)
