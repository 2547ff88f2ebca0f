"""A table of plain text, as screens, Markdown and pages show it."""

from __future__ import annotations

from gpudoc.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of plain text under headings; columns named in `numeric` are aligned to the right.

    Cells of columns in `shares` are percentages ("83%") and have a bar of that length behind them.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[str] = frozenset()
    shares: frozenset[str] = frozenset()
