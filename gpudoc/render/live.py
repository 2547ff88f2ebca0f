"""Progress on stderr: one line that is drawn over on a terminal, plain lines that stay everywhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from gpudoc.units import format_seconds

BAR_WIDTH = 24
REDRAW_S = 0.1


class Live:
    """A Progress for people; `with Live() as progress`. Silent steps when stderr is no terminal or `plain`."""

    def __init__(self, plain: bool = False) -> None:
        self._draws = sys.stderr.isatty() and not plain
        self._drawn_at = 0.0
        self._width = 0

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._clear()
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def advance(self, done: float, total: float, text: str) -> None:
        """Draw the bar at `done` of `total` seconds, at most ten times a second."""
        now = time.monotonic()
        if not self._draws or now - self._drawn_at < REDRAW_S:
            return
        self._drawn_at = now
        line = bar(done, total, text)
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = len(line)

    def _clear(self) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0


def bar(done: float, total: float, text: str) -> str:
    """The line that `advance` draws: bar, what is done, and about how long it still takes."""
    share = min(1.0, max(0.0, done / total)) if total > 0 else 0.0
    full = round(share * BAR_WIDTH)
    return f"[{'#' * full}{'.' * (BAR_WIDTH - full)}] {text}, about {format_seconds(max(1.0, total - done))} left"[:110]
