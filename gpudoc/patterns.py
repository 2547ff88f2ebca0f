"""The one place where regular expressions are compiled, and the deadline for the search of each text.

`Linear` uses RE2: its work grows in proportion to the text, whatever that contains. An expression that needs more than
RE2 knows, or is read line by line, or runs without RE2, is a `Pattern` of Python's own engine, whose work may grow
faster: tests/test_pattern_growth.py measures that growth for each of them, and a search that still takes too long is
given up.
"""

from __future__ import annotations

import functools
import math
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any

ASCII, DOTALL, IGNORECASE, MULTILINE = re.ASCII, re.DOTALL, re.IGNORECASE, re.MULTILINE
Match = re.Match
escape = re.escape

Span = tuple[int, int]
# CPU seconds: a busy machine skips nothing that a quiet one finds
SEARCH_S = 0.5
TEXT_S = 4.0
_TICK_S = 0.1


class Pattern:
    """A regular expression with the methods of `re.Pattern`, compiled when it is first used.

    A mistake in it shows at its first use. A search that is given up finds nothing, and the text's `SearchTime`
    names it.
    """

    __slots__ = ("_compiled", "_flags", "num_searches", "source")

    def __init__(self, source: str, flags: int = 0) -> None:
        self.source = source
        self.num_searches = 0
        self._flags = flags
        self._compiled: re.Pattern[str] | None = None

    @property
    def is_compiled(self) -> bool:
        """Whether it was used already."""
        return self._compiled is not None

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        """The first match anywhere in `text` from `start`."""
        self.num_searches += 1
        try:
            return (self._compiled or self._ready()).search(text, start)
        except _TooSlowError:
            return None

    def match(self, text: str) -> re.Match[str] | None:
        """The match at the beginning of `text`."""
        self.num_searches += 1
        try:
            return (self._compiled or self._ready()).match(text)
        except _TooSlowError:
            return None

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """The match that is all of `text`."""
        self.num_searches += 1
        try:
            return (self._compiled or self._ready()).fullmatch(text)
        except _TooSlowError:
            return None

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Every match, first to last."""
        matches = (self._compiled or self._ready()).finditer(text)
        while True:
            self.num_searches += 1
            try:
                match = next(matches, None)
            except _TooSlowError:
                return
            if match is None:
                return
            yield match

    def findall(self, text: str) -> list[Any]:
        """The text of every match; with one group, the group's text; with several groups, a tuple."""
        self.num_searches += 1
        try:
            return (self._compiled or self._ready()).findall(text)
        except _TooSlowError:
            return []

    def split(self, text: str) -> list[str]:
        """The texts between the matches, and the texts of their groups."""
        return (self._compiled or self._ready()).split(text)

    def sub(self, replacement: str | Callable[[re.Match[str]], str], text: str) -> str:
        """`text` with every match replaced."""
        return (self._compiled or self._ready()).sub(replacement, text)

    def _ready(self) -> re.Pattern[str]:
        self._compiled = re.compile(self.source, self._flags)
        return self._compiled


class Unproved(Pattern):
    """Replaces `Linear` without RE2: Python's engine searches, and nobody measured how its work grows.

    If a search cannot be interrupted, it goes through the text in pieces and checks the time between two; an expression
    that could take long on one piece is given up, and the text's `SearchTime` names it.
    """

    __slots__ = ()

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        """The first match anywhere in `text` from `start`."""
        limit = _deadline.get()
        if limit is None or limit.is_interrupting:
            return super().search(text, start)
        return next(self._in_pieces(text, start, limit), None)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Every match, first to last."""
        limit = _deadline.get()
        return super().finditer(text) if limit is None or limit.is_interrupting else self._in_pieces(text, 0, limit)

    def _in_pieces(self, text: str, start: int, limit: SearchTime) -> Iterator[re.Match[str]]:
        compiled = self._compiled or self._ready()
        if growth(self.source, compiled.flags) > _MOST_GROWTH:
            limit.given_up.setdefault(self.source)
            return
        for begin in range(start, max(start + 1, len(text)), PIECE):
            if not limit.allows(self.source):
                return
            # a match that begins in a piece ends in it or in the next one
            for match in compiled.finditer(text, max(begin, start), begin + 2 * PIECE):
                if match.start() >= begin + PIECE and begin + PIECE < len(text):
                    break
                start = max(match.end(), match.start() + 1)
                yield match


# characters of a piece, and the highest power of them with which its search may grow: some tenths of a second
PIECE = 1_000
_MOST_GROWTH = 2.4
_ENDLESS = 9.0


def growth(source: str, flags: int = 0) -> float:
    """The power of a piece's length with which the work of a search may grow at worst, by the expression's parts.

    Runs of blanks do not count: in the searched texts, a run is a single blank.
    """
    try:
        from re import _parser as parser  # type: ignore[attr-defined]
    except ImportError:  # Python 3.10
        import sre_parse as parser

    return 1 + _growth(parser.parse(source, flags & (DOTALL | IGNORECASE | MULTILINE)))


def _growth(tree: Iterable[tuple[object, Any]]) -> float:
    power = 0.0
    for operation, value in tree:
        match str(operation):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, inner = value
                if str(inner) == _BLANKS or most == least == 1:
                    continue
                if not (held := _growth(inner)) and most <= 1:
                    continue
                # in a repeat, a part that repeats or can match in two ways does so each time
                power += min(most, _ENDLESS) * held if most < PIECE else _ENDLESS * (held > 0) + 1
                power += math.log(most, PIECE) if 1 < most < PIECE else 0.0
            case "SUBPATTERN":
                power += _growth(value[-1])
            case "BRANCH":
                power += max(map(_growth, value[1])) + math.log(len(value[1]), PIECE)
            case "ASSERT" | "ASSERT_NOT":
                power += _growth(value[1])
            case "ATOMIC_GROUP":
                power += _growth(value)
            case "GROUPREF" | "GROUPREF_EXISTS":
                power += _ENDLESS
    return power


_BLANKS = "[(IN, [(CATEGORY, CATEGORY_SPACE)])]"


class NoLinearEngineError(ValueError):
    """RE2 is not installed."""


class Linear:
    """A regular expression that RE2 searches in characters of one byte, as `to_ascii` makes them."""

    __slots__ = ("_engine", "names", "source")

    def __init__(self, source: str) -> None:
        """ValueError without RE2, and for what it lacks: look-around, back references, letters beyond ASCII."""
        engine, options = _linear_engine()
        self.source = source
        if not source.isascii() or _BEYOND_ASCII in source:
            raise ValueError(f"letters beyond ASCII: {source}")
        self._engine = engine(source.encode(), options)
        if not self._engine.ok():
            raise ValueError(f"{self._engine.error().decode()}: {source}")
        self.names: Mapping[str, int] = {name.decode(): place for name, place in self._engine.NamedCapturingGroups()}

    def search(self, text: bytes, start: int = 0) -> tuple[Span, ...] | None:
        """The spans of the first match from `start` and of its groups, (-1, -1) for one that took no part; or None."""
        spans = self._engine.Match(self._engine.Anchor.UNANCHORED, text, start, len(text))
        return None if spans[0] == _NOWHERE else tuple(spans)

    def finditer(self, text: bytes) -> Iterator[tuple[Span, ...]]:
        """Every match, first to last."""
        start = 0
        while start <= len(text) and (spans := self.search(text, start)) is not None:
            yield spans
            begin, end = spans[0]
            start = end if end > begin else end + 1


@functools.cache
def _linear_engine() -> tuple[Any, Any]:
    try:
        # not its wrapper, which encodes the text for each search; imported here, since a live doctor needs neither
        from re2 import _re2 as re2  # type: ignore[attr-defined]
    except ImportError as problem:
        # it is compiled code, which the archive of `make zipapp` does not contain
        raise NoLinearEngineError(f"RE2 cannot be imported: {problem}") from None
    options = re2.RE2.Options()
    options.encoding, options.log_errors = options.Encoding.LATIN1, False
    return re2.RE2, options


class Scan:
    """Searches a file's bytes with RE2; without it, as in the archive of `make zipapp`, with Python's engine.

    Only for alternatives of a bounded length, which every engine finds quickly.
    """

    __slots__ = ("_engine",)

    def __init__(self, source: str) -> None:
        self._engine: Linear | re.Pattern[bytes]
        try:
            self._engine = Linear(source)
        except ValueError:
            self._engine = re.compile(source.encode())

    def search(self, text: bytes, start: int = 0) -> Span | None:
        """The span of the first match from `start`, or None."""
        if isinstance(self._engine, Linear):
            spans = self._engine.search(text, start)
            return None if spans is None else spans[0]
        match = self._engine.search(text, start)
        return None if match is None else match.span()

    def finditer(self, text: bytes) -> Iterator[Span]:
        """The span of every match, first to last."""
        if isinstance(self._engine, Linear):
            return (spans[0] for spans in self._engine.finditer(text))
        return (match.span() for match in self._engine.finditer(text))


_NOWHERE, _BEYOND_ASCII = (-1, -1), r"\u"


class _Stand(dict[int, str]):
    """A substitute for each character; if RE2 has no class for it, a character that no small-letter pattern names."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        if code < 128 and not sign.isspace():
            stands = sign
        elif sign.isspace():
            stands = sign if sign in " \t\n\r\f" else " "
        elif sign.isdecimal():
            stands = str(int(sign))
        else:
            stands = "Q" if sign.isalnum() else "\0"
        self[code] = stands
        return stands


_STANDS = _Stand()


def to_ascii(text: str) -> bytes:
    """A text in small letters as `Linear` sees it, of the same length: a letter beyond ASCII is still a letter."""
    plain = text.isascii() and not any(blank in text for blank in _ODD_BLANKS)
    return (text if plain else text.translate(_STANDS)).encode("ascii")


# white space for Python but not for RE2
_ODD_BLANKS = "\x0b\x1c\x1d\x1e\x1f"


class SearchTime:
    """How long one text may be searched: `SEARCH_S` for one search, `TEXT_S` for all of them, in CPU time.

    In the main thread, a search that takes longer is interrupted if nobody else uses the timer of the process. In
    another thread, no search begins once the text's time is over, and searches whose work can grow are bounded
    (`Unproved`).
    """

    __slots__ = ("_ends", "_seen", "_ticks", "given_up", "is_interrupting")

    def __init__(self) -> None:
        self._ends = time.thread_time() + TEXT_S
        self._seen: tuple[Pattern, int] | None = None
        self._ticks = 0
        self.is_interrupting = False
        """Whether a search that takes too long is interrupted here."""
        self.given_up: dict[str, None] = {}
        """The expressions that were not searched for, or not to the end, in order."""

    def allows(self, source: str) -> bool:
        """Whether there is time for one more expression; if not, it counts as given up."""
        if time.thread_time() < self._ends:
            return True
        self.given_up.setdefault(source)
        return False

    def tick(self, _number: int, frame: FrameType | None) -> None:
        """Give up the search that was under way for too many ticks; called by the timer."""
        pattern = frame.f_locals.get("self") if frame is not None and frame.f_code in _INTERRUPTED else None
        if not isinstance(pattern, Pattern):
            return
        under_way = pattern, pattern.num_searches
        self._ticks = self._ticks + 1 if under_way == self._seen else 0
        self._seen = under_way
        if self._ticks * _TICK_S >= SEARCH_S:
            self.given_up.setdefault(pattern.source)
            raise _TooSlowError


class _TooSlowError(Exception):
    """A search has taken too long."""


# a replacement is never given up: a secret would stay
_INTERRUPTED = {
    method.__code__ for method in (Pattern.search, Pattern.match, Pattern.fullmatch, Pattern.finditer, Pattern.findall)
}
_deadline: ContextVar[SearchTime | None] = ContextVar("_deadline", default=None)


def allowed(source: str) -> bool:
    """Whether the text that is searched here has time for this expression; always true without a deadline."""
    deadline = _deadline.get()
    return deadline is None or deadline.allows(source)


@contextmanager
def deadline() -> Iterator[SearchTime]:
    """The time to search one text; inside another text's time, that one goes on."""
    outer = _deadline.get()
    if outer is not None:
        yield outer
        return
    own = SearchTime()
    token = _deadline.set(own)
    try:
        with _timer(own):
            yield own
    finally:
        _deadline.reset(token)


@contextmanager
def _timer(own: SearchTime) -> Iterator[None]:
    if sys.platform == "win32" or not _is_timer_free():
        yield
    else:
        signal.signal(signal.SIGVTALRM, own.tick)
        signal.siginterrupt(signal.SIGVTALRM, False)
        signal.setitimer(signal.ITIMER_VIRTUAL, _TICK_S, _TICK_S)
        own.is_interrupting = True
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            signal.signal(signal.SIGVTALRM, signal.SIG_DFL)


def _is_timer_free() -> bool:
    """Whether this thread may use the timer of CPU time; a program that called the library may use it itself."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        return False
    return signal.getsignal(signal.SIGVTALRM) == signal.SIG_DFL and not any(signal.getitimer(signal.ITIMER_VIRTUAL))
