"""How a screen looks on a terminal: marks, colours, a box around the root cause. A pipe gets the plain lines."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from gpudoc.control_characters import escape_controls, escape_line
from gpudoc.patterns import Match, Pattern
from gpudoc.render import console

MARK = {"broken": "✗", "warning": "!", "info": "i"}
PASSED, UNCHECKED = "✓", "–"
# what a screen of 80 columns shows; wider ones show wider lines
NARROW, WIDE = 80, 118
_SMALLEST_BOX = 50
_WIDEST = 200
_TO_COPY = Pattern(r" *\$ |next  |profile  |summary: |go on with: ")
# so many lines are no limit
_ANY = 100
_WHOLE = Pattern(r"\[[^\[\]]{1,60}\]$|\([^()]{1,40}\)$|`[^`]{1,40}`|gpudoc doctor --\w+(?: \w+)?")
_WORDS = {"✗": "broken:", "!": "warning:", "i": "note:", PASSED: "passed:", UNCHECKED: "not checked:", "?": "unknown:"}
_MARKED = Pattern(r"(?m)^( *)([✗!i✓–?]) ")
_STYLES = (
    (r"(?m)^[│ ]*✗ .*?(?=  \[|  +│|$)", "bold red"),
    (r"(?m)^[│ ]*! .*?(?=  \[|  +│|$)", "bold yellow"),
    (r"(?m)^[│ ]*\? .*?(?=  +│|$)", "bold yellow"),
    (r"(?m)^ +✓(?= )", "green"),
    (r"(?m)^✓ .*$", "bold green"),
    (r"(?m)^– .*$", "bold"),
    (r"(?m)^ +– .*$", "dim"),
    (r"\[[a-z0-9_]+(?:, [^\]\n]+)\]", "dim"),
    (r"(?m)^[│ ]*\$ .*?(?=  +│|$)", "cyan"),
    (r"(?m)^[│ ]*(?:fix|gain|seen|explains|also|next|profile):?(?= )", "bold"),
    (r"(?m)^[╭│╰][─╮╯]*|[│╮╯]$", "dim"),
)


@dataclass(frozen=True, slots=True)
class Form:
    """How wide lines of text may be, and whether the root cause stands in a box."""

    width: int = NARROW
    boxed: bool = False

    @property
    def has_box(self) -> bool:
        """Whether there is room for a box."""
        return self.boxed and self.width >= _SMALLEST_BOX

    @property
    def inner(self) -> int:
        """Columns for a line of the root cause."""
        return self.width - 4 if self.has_box else self.width


def form(plain: bool = False, piped: int = NARROW) -> Form:
    """The form for stdout: that of the terminal; lines of `piped` columns without a box where it is none."""
    on_terminal = console.is_terminal()
    return Form(console.text_width(piped, WIDE), boxed=on_terminal and not plain)


def show(text: str, *, plain: bool = False) -> None:
    """Print a screen: on a terminal in colour and folded; with `plain` its marks are words to be heard."""
    out = console.stdout(plain)
    # before it is measured and folded
    text = escape_controls(text)
    if sys.stdout.isatty():
        text = _folded(text, console.text_width(NARROW, _WIDEST))
    said = Text(in_words(text)) if plain else paint(text) if out.is_terminal else Text(text)
    out.print(said, end="", soft_wrap=True)


def _folded(text: str, width: int) -> str:
    """`text` with no line broken inside a word; what is to be copied stays in one piece, which the terminal wraps."""
    lines: list[str] = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        short = len(line) <= width or _TO_COPY.match(line)
        lines += [line] if short else fold(line, width, indent=indent)
    return "\n".join(lines) + "\n"


def in_words(text: str) -> str:
    """`text` with the mark at the beginning of a line as a word."""
    return _MARKED.sub(_in_word, text)


def _in_word(match: Match[str]) -> str:
    """At the very beginning of a line stands a sentence of its own, which needs no word for well or neutral."""
    indent, mark = match[1], match[2]
    return "" if not indent and mark in (PASSED, UNCHECKED) else f"{indent}{_WORDS[mark]} "


def paint(text: str) -> Text:
    """`text` with the colours of its marks, labels and commands."""
    painted = Text(text)
    for pattern, style in _STYLES:
        painted.highlight_regex(pattern, style)
    return painted


def box(lines: Sequence[str], shape: Form) -> list[str]:
    """The lines in a box; with a command that is too long for it all steps stand below, in order, to be copied."""
    if not shape.has_box:
        return list(lines)
    inner, end = shape.inner, len(lines)
    if any(len(line) > inner for line in lines):
        steps = (at for at, line in enumerate(lines) if line.lstrip().startswith("fix:") or len(line) > inner)
        end = next(steps)
    return [
        f"╭{'─' * (inner + 2)}╮",
        *(f"│ {line:{inner}} │" for line in lines[:end]),
        f"╰{'─' * (inner + 2)}╯",
        *lines[end:],
    ]


def fold(text: str, width: int, *, indent: str = "  ", most: int = _ANY) -> list[str]:
    """`text` over at most so many lines of `width`, broken between words; what is longer ends in an ellipsis."""
    # what stands in brackets at the end is not broken, nor is a command
    kept = _WHOLE.sub(lambda match: match[0].replace(" ", "\u00a0"), text)
    wrapped = textwrap.wrap(kept, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=most < _ANY)
    lines = [line.replace("\u00a0", " ") for line in wrapped] or [text]
    if len(lines) > most:
        cut = lines[most - 1][: width - 1]
        # not in the middle of a word, where there is a word before it
        whole = cut.rpartition(" ")[0].rstrip() or cut[: width - 2]
        lines = [*lines[: most - 1], f"{whole} …"]
    return lines


def join_lines(lines: Iterable[str]) -> str:
    """The lines as one text that ends in a line end; a line end within one of them is written out."""
    return "".join(f"{escape_line(line)}\n" for line in lines)


def short_path(path: Path) -> str:
    """The path as people type it: under the home folder with a tilde."""
    try:
        return f"~/{path.resolve().relative_to(Path.home())}"
    except (ValueError, RuntimeError, OSError):
        return str(path)
