"""All text output of gpudoc: results to stdout, progress and messages to stderr, colour only on a terminal.

Only gpudoc's own colours, cursor moves and line ends reach a stream: other control characters in any text are
escaped here.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from gpudoc.control_characters import escape_controls, escape_line, to_json
from gpudoc.facts.redact import Private

# replacements for characters that the stream's encoding lacks; all others become a question mark
_INSTEAD = {
    "✓": "+", "✗": "x", "–": "-", "…": "...", "·": "|", "×": "x", "→": "->", "±": "+-", "°": "", "µ": "u",
    "─": "-", "│": "|", "╭": "+", "╮": "+", "╰": "+", "╯": "+", "█": "#", "░": ".", "━": "#",
}  # fmt: skip
_LEAST_COLUMNS = 20


class _Console(Console):
    """A console that escapes the control characters of every text that it draws."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments to draw; segments that move the cursor hold no text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(escape_controls(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """End the output if the reader is gone, but not the command, as rich would: its exit code still matters."""
        lose_reader(sys.stderr if self.stderr else sys.stdout)


def stdout(plain: bool = False) -> Console:
    """The console for results; without colour if piped, with NO_COLOR, or if `plain`."""
    return _console(stderr=False, plain=plain)


def stderr(plain: bool = False) -> Console:
    """The console for progress and messages."""
    return _console(stderr=True, plain=plain)


def text_width(least: int, most: int) -> int:
    """Columns for lines of text: the terminal's, but at most `most`; `least` if stdout is not a terminal."""
    if not sys.stdout.isatty():
        return least
    # leave room for three dots if the encoding has no ellipsis
    short = 0 if has_utf8(sys.stdout) else 2
    return max(_LEAST_COLUMNS, min(most, shutil.get_terminal_size().columns) - short)


def is_terminal() -> bool:
    """Whether stdout is a terminal that can do more than print lines."""
    return sys.stdout.isatty() and not is_dumb()


def is_dumb() -> bool:
    """Whether the terminal says that it can neither show colour nor move the cursor."""
    return os.environ.get("TERM") in ("dumb", "unknown")


def print_json(document: Private, *, indent: int | None = 2) -> None:
    """Print exactly one JSON document on stdout."""
    print_lines(to_json(document, indent=indent, ascii_only=not has_utf8(sys.stdout)))


def print_lines(text: str, stream: TextIO | None = None) -> None:
    """Print lines as they are, on stdout or another stream."""
    stream = stream or sys.stdout
    say_what_it_can(stream)
    try:
        stream.write(escape_controls(text) + "\n")
        stream.flush()
    except BrokenPipeError:
        lose_reader(stream)


def say_written(*places: Path | None) -> None:
    """Name the files that a command wrote for the user, on stderr, as its last lines; streams are left out."""
    for place in places:
        if place is not None and place.is_file():
            print_lines(f"wrote {escape_line(place)}", sys.stderr)


def lose_reader(stream: TextIO) -> None:
    """Discard further output to a stream whose reader is gone, so that the command goes on to its own exit code."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def has_utf8(stream: TextIO) -> bool:
    """Whether the stream's encoding has every character; that of a pipe in the C locale or on Windows does not."""
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")


def can_print(stream: TextIO, letter: str) -> bool:
    """Whether the stream's encoding has this letter."""
    try:
        letter.encode(stream.encoding or "utf-8")
    except (UnicodeError, LookupError):
        return False
    return True


def say_what_it_can(stream: TextIO) -> None:
    """Let a stream without UTF-8 print replacements for characters that it lacks, instead of failing."""
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
    return _Console(
        file=stream,
        stderr=stderr,
        no_color=quiet_colour,
        force_terminal=is_terminal,
        # in a notebook, rich would draw its own cell instead of writing to the stream
        force_jupyter=False,
        highlight=False,
        soft_wrap=not is_terminal,
        emoji=False,
        markup=False,
    )
