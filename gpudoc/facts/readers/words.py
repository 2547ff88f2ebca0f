"""Patterns that are cheap to rule out: each alternative is searched for only if one of its required words occurs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

from gpudoc.frozen import dataclass
from gpudoc.patterns import (
    DOTALL,
    MULTILINE,
    Linear,
    Match,
    NoLinearEngineError,
    Pattern,
    Span,
    Unproved,
    allowed,
    to_ascii,
)
from gpudoc.preparation import prepared_ways

_SHORTEST = 3
_OPTIONAL = ("?", "*", "{0", "{,")


class Written:
    """A text as it was written, in lower case, and in lower case without line ends.

    All three have the same length. Searching lower case for lower case is many times faster than ignoring case at every
    character; a wrapped message is found in the text without line ends.
    """

    __slots__ = ("_ascii", "flat", "folded", "lowered")

    def __init__(self, flat: str) -> None:
        self.flat = flat
        # this is the only letter whose lower case has two characters
        self.folded = flat.replace("\u0130", "i").lower()
        self.lowered = self.folded.replace("\n", " ")
        self._ascii: bytes | None = None

    @property
    def ascii(self) -> bytes:
        """The lower-case text as `Linear` sees it, of the same length."""
        if self._ascii is None:
            self._ascii = to_ascii(self.folded)
        return self._ascii

    def may_hold(self, anchors: tuple[str, ...]) -> bool:
        """Whether one of the words occurs, ignoring case; True if there are no words."""
        for anchor in anchors:
            if anchor in self.lowered:
                return True
        return not anchors


@dataclass(frozen=True, slots=True)
class Found:
    """A match with the interface of `re.Match`, in the original spelling."""

    spans: Sequence[Span]
    names: Mapping[str, int]
    flat: str

    def __getitem__(self, group: int | str) -> str | None:
        start, end = self.spans[self.names[group] if isinstance(group, str) else group]
        return None if start < 0 else self.flat[start:end]

    def groups(self) -> tuple[str | None, ...]:
        """The text of each group, None if it did not take part."""
        return tuple(self[number] for number in range(1, len(self.spans)))

    def groupdict(self) -> dict[str, str | None]:
        """The text of each named group."""
        return {name: self[name] for name in self.names}

    def span(self) -> Span:
        """Where it begins and ends."""
        return self.spans[0]


def read_match(match: Match[str], flat: str) -> Found:
    """A match of Python's engine."""
    return Found(match.regs, match.re.groupindex, flat)


@dataclass(frozen=True, slots=True)
class Alternative:
    """One alternative: the pattern's source, and words of which one must occur (without words: always searched)."""

    source: str
    anchors: tuple[str, ...]


class Words:
    """Several expressions for one thing, ignoring case; a blank stands for any white space, so wrapped lines match."""

    __slots__ = ("_given", "_known")

    def __init__(self, *alternatives: str) -> None:
        self._given = alternatives
        self._known: tuple[Alternative, ...] | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """The expressions as they were written."""
        return self._given

    @property
    def _alternatives(self) -> tuple[Alternative, ...]:
        # split when a text is first searched: at import there are hundreds of expressions but no text
        if self._known is None:
            self._known = tuple(Alternative(*way) for given in self._given for way in ways_of(given))
        return self._known

    @property
    def anchors(self) -> tuple[str, ...]:
        """Words of which every matching text contains at least one; empty if none is known."""
        return _choices([alternative.anchors for alternative in self._alternatives])

    def search(self, text: Written) -> Found | None:
        """The leftmost match of any alternative."""
        first: Found | None = None
        for alternative in self._alternatives:
            if text.may_hold(alternative.anchors) and allowed(alternative.source):
                match = _first(_compile(alternative.source), text)
                if match is not None and (first is None or match.span()[0] < first.span()[0]):
                    first = match
        return first

    def finditer(self, text: Written) -> Iterator[Found]:
        """Every match, alternative by alternative, ordered by where it begins."""
        matches: list[Found] = []
        for alternative in self._alternatives:
            if text.may_hold(alternative.anchors) and allowed(alternative.source):
                matches += _matches(_compile(alternative.source), text)
        return iter(sorted(matches, key=lambda found: found.span()[0]))


def _first(expression: Linear | Pattern, text: Written) -> Found | None:
    if isinstance(expression, Linear):
        spans = expression.search(text.ascii)
        return None if spans is None else Found(spans, expression.names, text.flat)
    match = expression.search(text.folded)
    return None if match is None else read_match(match, text.flat)


def _matches(expression: Linear | Pattern, text: Written) -> Iterator[Found]:
    if isinstance(expression, Linear):
        return (Found(spans, expression.names, text.flat) for spans in expression.finditer(text.ascii))
    return (read_match(match, text.flat) for match in expression.finditer(text.folded))


# one run needs only a few of the many patterns: each is compiled when its words first occur
@functools.cache
def _compile(source: str) -> Linear | Pattern:
    # " +" means the same as a blank, and Python 3.10 rejects the double repetition that it would become
    plain = source.replace(" +", " ").replace(" ?", r"\s*").replace(" *", r"\s*").replace(" ", r"\s+")
    small = _AS_IT_IS.sub(lambda part: part[1] or part[0].lower(), plain)
    # a search can jump to a literal letter, but would try a boundary at every character
    plain = _BOUNDARY.sub(r"\1(?<=\\b\1)", small)
    try:
        return Linear(f"(?sm){small}")
    except NoLinearEngineError:
        return Unproved(plain, DOTALL | MULTILINE)
    except ValueError:
        return Pattern(plain, DOTALL | MULTILINE)


# sequences that change their meaning in lower case
_AS_IT_IS = Pattern(r"(\\.|\(\?P)|[^\\(]+", DOTALL)
_BOUNDARY = Pattern(r"^\\b(\w+)(?=\w)")


@functools.cache
def anchors_of(source: str) -> tuple[str, ...]:
    """Lower-case words of which every text that matches contains at least one; empty if none is known."""
    return _choices([anchors for _, anchors in ways_of(source)])


def ways_of(source: str) -> list[tuple[str, tuple[str, ...]]]:
    """The parts of `source` between the bars outside any group, each with its anchors: lower-case words of which every
    match holds at least one; empty if none is known.
    """
    known = _prepared().get(source)
    if known is None:
        return take_apart(source)
    if not known or isinstance(known[0], str):
        return [(source, tuple(known))]
    return [(way, tuple(anchors)) for way, anchors in known]


_prepared = functools.cache(prepared_ways)


def take_apart(source: str) -> list[tuple[str, tuple[str, ...]]]:
    """Compute `ways_of` for an expression that was not prepared."""
    tokens = [(match.lastgroup or "", match[0], match.start()) for match in _TOKEN.finditer(source)]
    _, anchors, bars = _read_ways(tokens, 0)
    ends = [*bars, len(source)]
    starts = [0, *(bar + 1 for bar in bars)]
    return [(source[start:end], way) for start, end, way in zip(starts, ends, anchors, strict=True)]


# plain characters form one token; a repetition sign after it applies to its last character
_TOKEN = Pattern(
    r"(?P<plain>[^\\\[().^$*+?{|]+)|(?P<code>\\[xuU][\da-fA-F]+)|(?P<escaped>\\.)|"
    r"(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<aside>\(\?(?:[a-z]+|P=\w+)\))|(?P<ahead>\(\?<?[=!])|"
    r"(?P<open>\((?:\?[a-z-]*:|\?P<\w+>)?)|(?P<close>\))|(?P<bar>\|)|"
    r"(?P<repeat>(?:[*+?]|\{\d*,?\d*\})\??)|(?P<other>.)",
    DOTALL,
)
_END = ("", "", 0)


def _read_ways(tokens: list[tuple[str, str, int]], place: int) -> tuple[int, list[tuple[str, ...]], list[int]]:
    """Read from `place` to the end of the group: the place after it, the anchors of each way, and its bars' places."""
    ways: list[tuple[str, ...]] = []
    bars: list[int] = []
    best: tuple[str, ...] = ()
    run = ""
    while place < len(tokens):
        kind, text, start = tokens[place]
        place += 1
        choices: tuple[str, ...] = ()
        if kind in ("open", "ahead"):
            place, inner, _ = _read_ways(tokens, place)
            # lookaround text is not part of the match
            choices = _choices(inner) if kind == "open" else ()
        elif kind == "bar":
            ways.append(_better(best, (run,)))
            bars.append(start)
            best, run = (), ""
            continue
        elif kind == "close":
            break
        then, sign, _ = tokens[place] if place < len(tokens) else _END
        repeated = then == "repeat"
        place += repeated
        plain = text.lower() if kind == "plain" else text[1:] if kind == "escaped" and not text[1:].isalnum() else ""
        run += plain[:-1] if repeated else plain
        if repeated or not plain:
            best, run = _better(best, (run,)), ""
            if choices and not sign.startswith(_OPTIONAL):
                best = _better(best, choices)
    return place, [*ways, _better(best, (run,))], bars


def _choices(ways: list[tuple[str, ...]]) -> tuple[str, ...]:
    """The anchors of all ways together; empty if one way has none."""
    return tuple(word for way in ways for word in way) if all(ways) else ()


def _better(best: tuple[str, ...], words: tuple[str, ...]) -> tuple[str, ...]:
    # long words are rare, and so are letters of scripts that most texts lack; each further choice means more hits
    if not all(len(word) >= _SHORTEST or (word and not word.isascii()) for word in words):
        return best
    return words if not best or _weight(words) > _weight(best) else best


def _weight(words: tuple[str, ...]) -> float:
    return min(map(len, words)) - 0.5 * len(words)
