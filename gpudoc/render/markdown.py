"""Outside text as Markdown that only shows it: markup, links, mentions and fences in it have no effect."""

from __future__ import annotations

from gpudoc.control_characters import escape_controls, escape_line
from gpudoc.patterns import Pattern
from gpudoc.render.table import Table

_CODE = Pattern(r"(`[^`]+`)")
# GitHub turns an address, a name after @ and a number after # into links, whatever precedes them
_WORD = Pattern(r"\S+")
_LINKED = Pattern(r"@|://|www\.|(?<!\w)#\d|GH-\d")
_MARKUP = Pattern(r"[\\*\[\]<>~|]|(?<!\w)_|_(?!\w)")
_TICKS = Pattern(r"`+")


def prose(text: str) -> str:
    """One line of a sentence; text between backticks stays code."""
    parts = _CODE.split(escape_line(text))
    return "".join(part if part[:1] == "`" and len(part) > 1 else _plain(part) for part in parts)


def code(text: str) -> str:
    """One line as code within a sentence."""
    return f"`{escape_line(text).replace('`', chr(39))}`"


def fence(command: str) -> list[str]:
    """Shell lines as a code block that none of the lines can close."""
    longest = max((len(ticks) for ticks in _TICKS.findall(command)), default=0)
    mark = "`" * max(3, longest + 1)
    return [f"{mark}sh", escape_controls(command), mark]


def table(shown: Table) -> list[str]:
    """The table in the notation of GitHub."""
    marks = ["--:" if heading in shown.numeric else "---" for heading in shown.headings]
    rows = [[prose(cell.replace("|", "/")) for cell in row] for row in (shown.headings, *shown.rows)]
    return [f"| {' | '.join(row)} |" for row in (rows[0], marks, *rows[1:])]


def _plain(text: str) -> str:
    return _WORD.sub(lambda word: code(word[0]) if _LINKED.search(word[0]) else _escaped(word[0]), text)


def _escaped(word: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", word.replace("`", "'"))
