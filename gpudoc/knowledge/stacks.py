"""What a stack shows: the rows of stacks.yaml, whose expressions are compiled when the first stack is looked at."""

from __future__ import annotations

import functools
from typing import Literal

from gpudoc.frozen import dataclass
from gpudoc.knowledge.tables import Row, read_table
from gpudoc.patterns import Pattern

Section = Literal["outer", "loader", "inner", "lines", "waits"]


@dataclass(frozen=True, slots=True)
class StackRow:
    """One row: its values, and the patterns of a frame or of the text of the user's line."""

    says: Row
    _file: Pattern
    _function: Pattern
    _line: Pattern

    def fits_frame(self, file: str, function: str = "") -> bool:
        """Whether a frame of this file and function matches; never for a row without patterns for frames."""
        known = "file" in self.says or "function" in self.says
        return known and bool(self._file.search(file) and self._function.search(function))

    def fits_line(self, text: str) -> bool:
        """Whether the text of a line matches; never for a row without a pattern for lines."""
        return "line" in self.says and self._line.search(text) is not None


@functools.cache
def stack_rows(section: Section) -> tuple[StackRow, ...]:
    """The rows of one section in the order in which they are tried."""
    keys = ("file", "function", "line")
    return tuple(
        StackRow(row, *(Pattern(str(row.get(key, ""))) for key in keys)) for row in read_table("stacks.yaml", section)
    )
