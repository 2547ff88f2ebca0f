"""The areas that causes belong to, in the words in which a screen groups checks: the files of knowledge/causes."""

from __future__ import annotations

from collections.abc import Iterable

from gpudoc.knowledge.cause_rows import AREAS, areas

__all__ = ["AREAS", "area_of", "count_by_area"]

_REST = "program"


def area_of(cause_id: str) -> str:
    """The area of a cause, 'program' for what has no row."""
    return areas().get(cause_id, _REST)


def count_by_area(ids: Iterable[str]) -> dict[str, int]:
    """How many of the causes belong to each area, in the order in which areas are shown; areas without any left out."""
    counts = dict.fromkeys(AREAS, 0)
    for cause_id in ids:
        counts[area_of(cause_id)] += 1
    return {area: count for area, count in counts.items() if count}
