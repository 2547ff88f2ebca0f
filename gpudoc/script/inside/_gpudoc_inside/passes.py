"""How often the lines of the user's busiest functions run in a step: this reveals loops of many short passes."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Iterable

_STEPS = 3
# about two seconds: counting stops after this many events, and the counts are then lower bounds
_MOST_EVENTS = 5_000_000


class PassCounter:
    """Counts, over a few steps of the main thread, the lines that run in functions which hold a wanted line."""

    def __init__(self, is_users: Callable[[str], bool]) -> None:
        self._is_users = is_users
        self._wanted: dict[str, set[int]] = {}
        # the file of each function seen so far, '' if it holds no wanted line
        self._files: dict[Any, str] = {}
        self._counts: dict[tuple[str, int], int] = {}
        self._events = self._steps = 0
        self.is_on = self.is_done = False

    @property
    def passes(self) -> dict[tuple[str, int], float]:
        """How often each line ran in a step; empty until counting is done."""
        return {line: count / self._steps for line, count in self._counts.items()} if self.is_done else {}

    def begin(self, lines: Iterable[tuple[str, int]], frame: Any) -> None:
        """Start to count, also in the functions that run now: `frame` is the innermost of them."""
        if sys.gettrace() is not None:
            # a debugger or a coverage tool already traces
            self.is_done = True
            return
        for file, line in lines:
            self._wanted.setdefault(file, set()).add(line)
        self.is_on, self._steps = True, 1
        sys.settrace(self._called)
        while frame is not None:
            if self._file_of(frame.f_code):
                frame.f_trace = self._ran
            frame = frame.f_back

    def stepped(self, frame: Any) -> None:
        """Note the end of a step; after the last step, tracing ends, also in the functions that still run."""
        if self._steps < _STEPS:
            self._steps += 1
            return
        self.stop()
        while frame is not None:
            if self._file_of(frame.f_code):
                frame.f_trace = None
            frame = frame.f_back

    def stop(self) -> None:
        """Stop counting; the counts stay."""
        if self.is_on:
            self.is_on, self.is_done = False, True
            sys.settrace(None)

    def _called(self, frame: Any, _event: str, _argument: Any) -> Any:
        return self._ran if self.is_on and self._file_of(frame.f_code) else None

    def _ran(self, frame: Any, event: str, _argument: Any) -> Any:
        if not self.is_on:
            return None
        if event == "line":
            place = self._files[frame.f_code], frame.f_lineno
            self._counts[place] = self._counts.get(place, 0) + 1
            self._events += 1
            if self._events >= _MOST_EVENTS:
                self.stop()
        return self._ran

    def _file_of(self, code: Any) -> str:
        known = self._files.get(code)
        if known is None:
            file = os.path.abspath(code.co_filename) if self._is_users(code.co_filename) else ""
            lines = self._wanted.get(file, set())
            known = file if any(line in lines for _, _, line in code.co_lines()) else ""
            self._files[code] = known
        return known
