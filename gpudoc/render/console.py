"""Where text leaves gpudoc: results to stdout, progress and messages to stderr, colour only on a terminal."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Mapping
from typing import TextIO

from rich.console import Console


def stdout(plain: bool = False) -> Console:
    """The console for results; without colour when piped, with NO_COLOR or when `plain`."""
    return _console(stderr=False, plain=plain)


def stderr(plain: bool = False) -> Console:
    """The console for progress and messages."""
    return _console(stderr=True, plain=plain)


def text_width(least: int, most: int) -> int:
    """Columns for lines of text: those of the terminal within the bounds, the least where stdout is no terminal."""
    if not sys.stdout.isatty():
        return least
    return max(least, min(most, shutil.get_terminal_size().columns))


def print_json(document: Mapping[str, object]) -> None:
    """Exactly one JSON document on stdout."""
    json.dump(document, sys.stdout, indent=2, ensure_ascii=not _says_everything(sys.stdout))
    sys.stdout.write("\n")
    sys.stdout.flush()


def _says_everything(stream: TextIO) -> bool:
    """Whether the stream's encoding has every character; a pipe of the C locale or of Windows has not."""
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")


def _console(*, stderr: bool, plain: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper) and not _says_everything(stream):
        stream.reconfigure(errors="replace")
    is_terminal = stream.isatty() and not plain
    quiet_colour = plain or not stream.isatty() or bool(os.environ.get("NO_COLOR"))
    return Console(
        file=stream,
        no_color=quiet_colour,
        force_terminal=is_terminal,
        highlight=False,
        soft_wrap=not is_terminal,
        emoji=False,
        markup=False,
    )
