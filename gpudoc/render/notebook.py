"""gpudoc in a notebook: a page inside an output cell, and progress that is redrawn in one place."""

from __future__ import annotations

import html
import sys
import time
from typing import Any

from gpudoc.control_characters import escape_controls, escape_line
from gpudoc.units import format_seconds

_REDRAW_S = 0.2
_MOST_LINES = 8


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook; IPython on a terminal is not."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def frame(page: str) -> str:
    """The page in a separate frame, so that its style stays inside and nothing in it reaches the notebook."""
    style = "width:100%;height:38rem;border:0;border-radius:8px;resize:vertical;overflow:auto"
    return f'<iframe sandbox="allow-scripts" srcdoc="{html.escape(page)}" style="{style}"></iframe>'


class Notebook:
    """A Progress for the running cell: a moving bar, and above it the last lines of `say`."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._bar = ""
        self._advanced_at = 0.0
        self._handle: Any = None

    def say(self, text: str) -> None:
        """Show a line that stays until newer ones push it out."""
        self._lines = [*self._lines, text][-_MOST_LINES:]
        self._draw()

    def advance(self, done: float, total: float, text: str) -> None:
        """Draw the bar at `done` of `total`, at most five times a second."""
        now = time.monotonic()
        if now - self._advanced_at < _REDRAW_S:
            return
        self._advanced_at = now
        left = format_seconds(max(1.0, total - done))
        self._bar = (
            f'<progress value="{done:.3f}" max="{max(total, 1e-9):.3f}" style="width:60%"></progress> '
            f"{html.escape(escape_line(text))}, about {left} left"
        )
        self._draw()

    def close(self) -> None:
        """Remove the bar; the lines stay."""
        self._bar = ""
        if self._handle is not None:
            self._draw()

    def _draw(self) -> None:
        from IPython.display import HTML, display

        lines = "\n".join(html.escape(escape_controls(line)) for line in self._lines)
        drawing = HTML(f'<pre style="white-space:pre-wrap;margin:0">{lines}</pre>{self._bar}')
        if self._handle is None:
            self._handle = display(drawing, display_id=True)
        else:
            self._handle.update(drawing)
