"""One line of a traceback as a frame, as Python, IPython, Colab and rich print it, or what a paste left of it."""

from __future__ import annotations

from typing import Literal

from gpudoc.facts.readers.python_errors import CodeFrame
from gpudoc.patterns import Match, Pattern

Style = Literal["plain", "notebook", "rich", "pytest"]

_FRAME = Pattern(r"File \"([^\"]{1,500})\", line (\d+)(?:, in (.+)|[,:]?$)")
# a paste that begins within the line: 'data/store.py", line 87, in reset'
_CUT_FRAME = Pattern(r"(?:[File]{0,4} ?\")?([^\s\":]{1,300}(?:\.py|>))\", line (\d+)(?:, in (.+)|[,:]?$)")
_CELL = Pattern(r"((?:Cell In|Input In) ?\[\d{0,6}\])(?:, line (\d+))?(?:, in (.+))?$")
_NOTEBOOK_CELL = Pattern(r"(\S.{0,300}?\.ipynb Cell \d{1,6})(?:,? line (\d+))?(?: in (.+))?$")
_IPYTHON_FILE = Pattern(r"File (\S.*?\.\w{2,4}|<[\w-]+>):(\d+)(?:, in (.+))?$")
_OLD_IPYTHON = Pattern(r"(\S+(?:\.py|>)) in (\S.*)$")
_RICH_FRAME = Pattern(r"([^\s:]\S*\.py|<[\w-]+>):(\d+)(?: in (\S+))?$")
# Colab makes a link of each file
_LINK = Pattern(r"\[([^\]\s]{1,400})\]\(https?://[^)\s]{1,200}\)")
# the source behind the name of its function, where a paste made one line of two
_GLUED = Pattern(r"(<[^<>]{1,40}>|\w+) (\S.*)$")


def read_frame(bare: str, style: Style, quoted: str, origin: str) -> tuple[CodeFrame, Style] | None:
    """The frame that the line is and who prints frames so; None for another line.

    `style` is that of the traceback around it, `quoted` the line above, which may hold the beginning of a path.
    """
    if '", line ' in bare:
        return _of_python(_FRAME.search(bare) or _CUT_FRAME.match(bare), origin)
    found: Match[str] | None = None
    if bare.startswith(("Cell In", "Input In")):
        found, style = _CELL.match(bare), "notebook"
    elif ".ipynb Cell " in bare:
        found, style = _NOTEBOOK_CELL.match(bare), "notebook"
    elif bare.startswith("File "):
        found = _IPYTHON_FILE.match(bare)
    elif " in " in bare and (style == "notebook" or "ipython-input-" in bare or "/ipykernel_" in bare):
        old = _OLD_IPYTHON.match(_LINK.sub(r"\1", bare))
        return None if old is None else (CodeFrame(file=old[1], function=_function(old[2]), origin=origin), "notebook")
    elif style == "rich" and ":" in bare:
        bare = bare.strip("|\u2502 ")
        found = _RICH_FRAME.match(quoted + bare) or _RICH_FRAME.match(bare)
    if found is None:
        return None
    return CodeFrame(file=found[1], line=int(found[2] or 0), function=_function(found[3] or ""), origin=origin), style


def _of_python(found: Match[str] | None, origin: str) -> tuple[CodeFrame, Style] | None:
    if found is None:
        return None
    glued = _GLUED.match(found[3] or "")
    function, source = (glued[1], glued[2]) if glued is not None else (found[3] or "", "")
    frame = CodeFrame(file=found[1], line=int(found[2]), function=_function(function), source=source, origin=origin)
    return frame, "plain"


def _function(text: str) -> str:
    """The name of a function that IPython shows with its arguments, '' for a cell."""
    name = text.split("(")[0].strip()
    return "" if name.startswith("<cell") else name
