"""Where text leaves gpudoc: results to stdout, progress and messages to stderr, colour only on a terminal."""

from __future__ import annotations

import codecs
import io
import json
import os
import shutil
import sys
from collections.abc import Mapping
from typing import TextIO

from rich.console import Console

# what stands for a character that the stream does not have; others are a question mark
_INSTEAD = {
    "✓": "+", "✗": "x", "–": "-", "…": "...", "·": "|", "×": "x", "→": "->", "±": "+-", "°": "", "µ": "u",
    "─": "-", "│": "|", "╭": "+", "╮": "+", "╰": "+", "╯": "+", "█": "#", "░": ".", "━": "#",
}  # fmt: skip
_LEAST_COLUMNS = 20


def stdout(plain: bool = False) -> Console:
    """The console for results; without colour when piped, with NO_COLOR or when `plain`."""
    return _console(stderr=False, plain=plain)


def stderr(plain: bool = False) -> Console:
    """The console for progress and messages."""
    return _console(stderr=True, plain=plain)


def text_width(least: int, most: int) -> int:
    """Columns for lines of text: those of the terminal, `most` at most; `least` where stdout is no terminal."""
    if not sys.stdout.isatty():
        return least
    # three dots stand for an ellipsis where there is none
    short = 0 if has_utf8(sys.stdout) else 2
    return max(_LEAST_COLUMNS, min(most, shutil.get_terminal_size().columns) - short)


def is_terminal() -> bool:
    """Whether stdout is a terminal that can show more than lines."""
    return sys.stdout.isatty() and not is_dumb()


def is_dumb() -> bool:
    """Whether the terminal says that it can neither colour nor move the cursor."""
    return os.environ.get("TERM") in ("dumb", "unknown")


def print_json(document: Mapping[str, object]) -> None:
    """Exactly one JSON document on stdout."""
    json.dump(document, sys.stdout, indent=2, ensure_ascii=not has_utf8(sys.stdout))
    sys.stdout.write("\n")
    sys.stdout.flush()


def has_utf8(stream: TextIO) -> bool:
    """Whether the stream's encoding has every character; a pipe of the C locale or of Windows has not."""
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")


def say_what_it_can(stream: TextIO) -> None:
    """Let a stream without UTF-8 print what it has no character for in other words, instead of failing."""
    if isinstance(stream, io.TextIOWrapper) and not has_utf8(stream):
        codecs.register_error("gpudoc", _in_other_words)
        stream.reconfigure(errors="gpudoc")


def _in_other_words(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_INSTEAD.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def _console(*, stderr: bool, plain: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    say_what_it_can(stream)
    is_terminal = stream.isatty() and not plain and not is_dumb()
    quiet_colour = plain or not stream.isatty() or bool(os.environ.get("NO_COLOR"))
    return Console(
        file=stream,
        no_color=quiet_colour,
        force_terminal=is_terminal,
        # in a notebook rich would draw a cell of its own instead of writing to the stream
        force_jupyter=False,
        highlight=False,
        soft_wrap=not is_terminal,
        emoji=False,
        markup=False,
    )
