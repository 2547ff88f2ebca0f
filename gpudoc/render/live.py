"""Progress on stderr: a few lines that are redrawn on a terminal, plain lines that stay everywhere else."""

from __future__ import annotations

import shutil
import sys
import textwrap
import threading
import time
from types import TracebackType

from gpudoc.control_characters import escape_controls, escape_line
from gpudoc.process.stacks import little_stacks
from gpudoc.render import console
from gpudoc.units import format_seconds

# for drawing threads, in a process that may be training under a memory limit
SCREEN_STACK_BYTES = 1 << 20
_BAR = 16
_REDRAW_S = 0.15
_MOST_LINES = 3
# the spinner, the done part of the bar, the remaining part
_SIGNS, _ASCII_SIGNS = ("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "━", "╌"), ("|/-\\", "#", ".")
_ALL_STAYS, _TOLD_AFTER_A_FAILURE = "! ", 5


class Live:
    """A Progress for people; `with Live() as progress`. Silent steps when stderr is not a terminal or `plain`.

    Lines of `say` stay; with `keep` False, on a terminal, only the last one shows and is redrawn, except for lines that
    begin with an exclamation mark, and the last few if the action fails.
    """

    def __init__(self, plain: bool = False, *, keep: bool = True) -> None:
        console.say_what_it_can(sys.stderr)
        self._draws = sys.stderr.isatty() and not plain and not console.is_dumb()
        self._keeps = keep or not self._draws
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._ticking: threading.Thread | None = None
        self._step: tuple[float, float, str] | None = None
        self._since = 0.0
        self._said: list[str] = []
        self._drawn = 0
        self._frame = 0

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._ticking is not None:
            self._ticking.join()
        with self._lock:
            self._clear()
            if isinstance(error, Exception) and not self._keeps:
                sys.stderr.write("".join(f"{line}\n" for line in self._said[-_TOLD_AFTER_A_FAILURE:]))
            sys.stderr.flush()

    def say(self, text: str) -> None:
        """Show a line that stays, or that shows until the next one."""
        text = escape_controls(text)
        with self._lock:
            if self._keeps or text.startswith(_ALL_STAYS):
                self._clear()
                sys.stderr.write((_broken(text) if self._draws else text) + "\n")
                sys.stderr.flush()
                return
            self._said.append(text)
        self._tick()

    def advance(self, done: float, total: float, text: str) -> None:
        """Show the current work; seconds run on until the next call, ints count things, and a total of 0 means none."""
        with self._lock:
            self._step, self._since = (done, total, escape_line(text)), time.monotonic()
        self._tick()

    def _tick(self) -> None:
        if self._draws and self._ticking is None and not self._ended.is_set():
            self._draw()
            self._ticking = threading.Thread(target=self._run, name="gpudoc-progress", daemon=True)
            with little_stacks(SCREEN_STACK_BYTES):
                self._ticking.start()

    def _run(self) -> None:
        while not self._ended.wait(_REDRAW_S):
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            shown = lines(self._step, time.monotonic() - self._since, self._frame, shutil.get_terminal_size().columns)
            if self._said and not self._keeps:
                shown.append(_cut(f"  {self._said[-1].strip()}", shutil.get_terminal_size().columns))
            self._frame += 1
            self._clear()
            # return to the line's start, since the ^C that a terminal shows would break the line at its end
            sys.stderr.write("\n".join(shown) + "\r")
            sys.stderr.flush()
            self._drawn = len(shown)

    def _clear(self) -> None:
        if self._drawn:
            up = f"\x1b[{self._drawn - 1}A" if self._drawn > 1 else ""
            sys.stderr.write(f"\r{up}\x1b[J")
            self._drawn = 0


def lines(step: tuple[float, float, str] | None, elapsed: float, frame: int, columns: int) -> list[str]:
    """The lines of one drawing: spinner and bar, time or count, and the parts of the text between ' · '."""
    turns, full, empty = _SIGNS if console.has_utf8(sys.stderr) else _ASCII_SIGNS
    mark = turns[frame % len(turns)]
    if step is None:
        return [mark]
    done, total, text = step
    if not total:
        return [_cut(f"{mark} {text}", columns)]
    if isinstance(total, int):
        place = f"{done:.0f} of {total}"
    else:
        done = min(done + elapsed, total)
        place = f"{format_seconds(max(1.0, round(done)))} of {format_seconds(max(1.0, round(total)))}"
    filled = min(_BAR, round(_BAR * done / total))
    packed = [f"{mark} {full * filled}{empty * (_BAR - filled)}"]
    for part in (place, *text.split(" · ")):
        between = " " if packed[-1].endswith((full, empty)) else " · "
        if len(packed[-1]) + len(between) + len(part) < columns:
            packed[-1] += between + part
        else:
            packed.append(f"  {part}")
    return [_cut(line, columns) for line in packed[:_MOST_LINES]]


def _broken(text: str) -> str:
    """The text folded to the terminal's width between words; a word that is too long stays whole, to be copied."""
    width = max(20, shutil.get_terminal_size().columns - 1)
    return "\n".join(
        line
        if len(line) <= width
        else textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines()
    )


def _cut(text: str, columns: int) -> str:
    return text if len(text) < columns else f"{text[: max(0, columns - 2)]}…"
