"""A table of plain text, as screens, Markdown and pages show it."""

from __future__ import annotations

from gpudoc.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of plain text under headings; columns named in `numeric` are set to the right.

    Cells of those in `shares` are per cent of something ("83%") and have a bar of that length behind them.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[str] = frozenset()
    shares: frozenset[str] = frozenset()
