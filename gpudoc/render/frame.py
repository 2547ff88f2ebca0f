"""The look of a screen on a terminal: marks, colours, a box around the root cause. A pipe gets the plain lines."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

from gpudoc.control_characters import escape_controls, escape_line
from gpudoc.frozen import dataclass
from gpudoc.patterns import Match, Pattern
from gpudoc.render import console

if TYPE_CHECKING:
    from gpudoc.doctor.model import Report

# fills a screen's template with its values, in the language of the report
Say = Callable[..., str]

MARK = {"broken": "✗", "warning": "!", "info": "i"}
PASSED, UNCHECKED = "✓", "–"
# columns of text: NARROW for a screen of 80 columns, at most WIDE on a wider one
NARROW, WIDE = 80, 118
_SMALLEST_BOX = 50
_WIDEST = 200
_TO_COPY = Pattern(r" *\$ |next  |profile  |summary: |continue with: ")
# a limit of this many lines means no limit
_ANY = 100
_WHOLE = Pattern(r"\[[^\[\]]{1,60}\]$|\([^()]{1,40}\)$|`[^`]{1,40}`|gpudoc doctor --\w+(?: \w+)?")
# the pieces of a text with wide characters: one such character or a word, and the punctuation right after it
_BROAD = r"\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef"
_PIECE = Pattern(rf"(?:[{_BROAD}]|[^ {_BROAD}]+)[\u3001\u3002\uff01\uff09\uff0c\uff1a\uff1b\uff1f]* *| +")
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
    (r"(?m)^[│ ]*(?:[\u4e00-\u9fff]{2,6}\uff1a|[\u0430-\u044f\u0451]+:(?= ))", "bold"),
    (r"(?m)^[╭│╰][─╮╯]*|[│╮╯]$", "dim"),
)


@dataclass(frozen=True, slots=True)
class Form:
    """The width of lines of text, and whether the root cause is in a box."""

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
    """The form for stdout: the terminal's; lines of `piped` columns without a box if it is not a terminal."""
    on_terminal = console.is_terminal()
    return Form(console.text_width(piped, WIDE), boxed=on_terminal and not plain)


def show(text: str, *, plain: bool = False) -> None:
    """Print a screen: in colour and folded on a terminal; with `plain`, its marks are words for a screen reader."""
    out = console.stdout(plain)
    # must happen before the text is measured and folded
    text = escape_controls(text)
    if sys.stdout.isatty():
        text = _folded(text, console.text_width(NARROW, _WIDEST))
    said = Text(in_words(text)) if plain else paint(text) if out.is_terminal else Text(text)
    out.print(said, end="", soft_wrap=True)


def _folded(text: str, width: int) -> str:
    """`text` folded only between words; a line to copy stays in one piece, and the terminal wraps it."""
    lines: list[str] = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        short = cell_len(line) <= width or _TO_COPY.match(line)
        lines += [line] if short else fold(line, width, indent=indent)
    return "\n".join(lines) + "\n"


def in_words(text: str) -> str:
    """`text` with each mark at the beginning of a line as a word."""
    return _MARKED.sub(_in_word, text)


def _in_word(match: Match[str]) -> str:
    """The word for a mark; '' for a good or neutral mark without indent, since a whole sentence follows it."""
    indent, mark = match[1], match[2]
    return "" if not indent and mark in (PASSED, UNCHECKED) else f"{indent}{_WORDS[mark]} "


def paint(text: str) -> Text:
    """`text` with the colours of its marks, labels and commands."""
    painted = Text(text)
    for pattern, style in _STYLES:
        painted.highlight_regex(pattern, style)
    return painted


def box(lines: Sequence[str], shape: Form, step: str = "fix:") -> list[str]:
    """The lines in a box; if a line is too long for it, all steps stand below the box, in order, to be copied.

    A line that begins with `step` is a step.
    """
    if not shape.has_box:
        return list(lines)
    inner, end = shape.inner, len(lines)
    if any(cell_len(line) > inner for line in lines):
        steps = (at for at, line in enumerate(lines) if line.lstrip().startswith(step) or cell_len(line) > inner)
        end = next(steps)
    return [
        f"╭{'─' * (inner + 2)}╮",
        *(f"│ {line}{' ' * (inner - cell_len(line))} │" for line in lines[:end]),
        f"╰{'─' * (inner + 2)}╯",
        *lines[end:],
    ]


def fold(text: str, width: int, *, indent: str = "  ", most: int = _ANY) -> list[str]:
    """`text` over at most `most` lines of `width`, broken between words; a longer text ends in an ellipsis."""
    # brackets at the end and commands are not broken
    kept = _WHOLE.sub(lambda match: match[0].replace(" ", "\u00a0"), text)
    if cell_len(kept) > len(kept):
        wrapped = _wrapped_wide(kept, width, indent)
    else:
        long = most < _ANY
        wrapped = textwrap.wrap(kept, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=long)
    lines = [line.replace("\u00a0", " ") for line in wrapped] or [text]
    if len(lines) > most:
        cut = set_cell_size(lines[most - 1], width - 1).rstrip()
        if cell_len(cut) > len(cut):
            return [*lines[: most - 1], f"{cut[:-1] if cell_len(cut) >= width - 1 else cut}…"]
        # do not cut in the middle of a word if there is a word before it
        whole = cut.rpartition(" ")[0].rstrip() or cut[: width - 2]
        lines = [*lines[: most - 1], f"{whole} …"]
    return lines


def _wrapped_wide(text: str, width: int, indent: str) -> list[str]:
    """Wrap text with characters of two columns, which may break at each of them; no line begins with punctuation."""
    lines = [text[: len(text) - len(text.lstrip())]]
    pieces = (part for piece in _PIECE.findall(text.lstrip()) for part in chop_cells(piece, width - len(indent)))
    for piece in pieces:
        if cell_len(lines[-1] + piece.rstrip()) > width and lines[-1].strip():
            lines = [*lines[:-1], lines[-1].rstrip(), indent]
            piece = piece.lstrip()
        lines[-1] += piece
    return [*lines[:-1], lines[-1].rstrip()]


def join_lines(lines: Iterable[str]) -> str:
    """The lines as one text that ends in a line end; a line end inside a line is escaped."""
    return "".join(f"{escape_line(line)}\n" for line in lines)


def short_path(path: Path) -> str:
    """The path as people type it: with a tilde if it is under the home folder."""
    try:
        return f"~/{path.resolve().relative_to(Path.home())}"
    except (ValueError, RuntimeError, OSError):
        return str(path)


def in_own_language(report: Report) -> tuple[Report, Say]:
    """The report in its question's language, and the function that says the words around it; English reads no file."""
    from gpudoc.facts.readers.model import ENGLISH

    if report.language == ENGLISH:
        return report, str.format
    from gpudoc.doctor.translation import translate
    from gpudoc.knowledge.translations import translation

    return translate(report), translation(report.language).say
