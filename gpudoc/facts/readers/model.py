"""A text after cleaning: numbered lines, one flat text for wrapped sentences, and the facts that were read from it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import field, fields, is_dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal

from gpudoc.facts.model import Absent, Machine
from gpudoc.facts.readers.genre import PASTE, Kind
from gpudoc.facts.readers.python_errors import ErrorChain
from gpudoc.facts.readers.words import Found, Words, Written, anchors_of, read_match
from gpudoc.frozen import dataclass
from gpudoc.patterns import Pattern, allowed

if TYPE_CHECKING:
    from gpudoc.facts.readers.dumps import MemorySnapshot, RankTrace

# the language in which doctor answers
Language = Literal["en", "zh", "ru"]
ENGLISH: Language = "en"


# prefixes that loggers, launchers and containers put before each line; the rank tells the streams apart
_RANK = Pattern(
    r"\s{0,2}(\[(?:rank|default|Rank|RANK|trainer|worker)[:= ]{0,2}\d{1,5}\]:?|"
    r"\[\d{1,3},\d{1,5}\]<std(?:out|err)>:|"
    r"\([\w.]{0,60} ?(?:pid|rank)=[^()]{1,80}\)|"
    r"\d{1,4}:(?= )|[\w.-]{1,60} {1,12}\|(?= ))"
)
_NOISE = Pattern(
    r"\s{0,2}(?:\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?|"
    r"(?:stdout|stderr)(?: [FP]|:)|\[(?:ERROR|CRITICAL|WARNING|INFO|stderr)\]:?|"
    r"(?:ERROR|CRITICAL|FATAL)(?::[\w.]{1,60}:| -|:)|-(?= )|[\w.]{3,60} - (?:ERROR|CRITICAL) - )(?: |$)?|"
    r"\s{0,12}\|(?: |$)"
)
_BEFORE = "[(-|0123456789+"


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its number in the input (from 1), its cleaned text, and the name of its input."""

    number: int
    text: str
    source: str = ""

    @property
    def origin(self) -> str:
        """The place of the line, as a report cites it: 'line 18', 'train.log line 18', 'torch'."""
        if not self.number:
            return self.source
        return f"{self.source} line {self.number}".strip()

    def follows(self, before: Line | None, within: int) -> bool:
        """Whether it is in the same input as `before`, at most `within` lines below; if not, a piece is missing."""
        return before is None or (self.source == before.source and 0 <= self.number - before.number <= within)


@dataclass(frozen=True, slots=True)
class Mention:
    """One place where a pattern was found: the match and the line where it begins."""

    match: Found
    line: Line

    def __getitem__(self, group: int | str) -> str:
        return self.match[group] or ""

    @property
    def start(self) -> int:
        """The offset in the flat text, to tell which of two mentions comes first."""
        return self.match.span()[0]


# where Chinese, Japanese or Korean meets Latin letters without a blank: a word of one ends there
_SCRIPTS_MEET = Pattern(
    r"(?<=[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9%])(?=[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af])"
)


class CleanText(Written):
    """Cleaned lines and their join in one flat text, in which a sentence that was wrapped over lines is whole again."""

    __slots__ = ("_found", "_starts", "lines")

    def __init__(self, lines: tuple[Line, ...]) -> None:
        self.lines = lines
        starts: list[int] = []
        parts: list[str] = []
        place = 0
        for line in lines:
            starts.append(place)
            part = " ".join(line.text.split())
            if not part.isascii():
                part = _SCRIPTS_MEET.sub(" ", part)
            parts.append(part)
            place += len(part) + 1
        self._starts = starts
        super().__init__("\n".join(parts))
        # results of earlier searches: many rows look for the same lists of words
        self._found: dict[Pattern | Words, Found | None] = {}

    def find(self, pattern: Pattern | Words) -> Mention | None:
        """The first place where `pattern` matches the flat text, or None."""
        if pattern not in self._found:
            self._found[pattern] = pattern.search(self) if isinstance(pattern, Words) else self._first(pattern)
        found = self._found[pattern]
        return None if found is None else self._mention(found)

    def find_all(self, pattern: Pattern | Words, most: int = 200) -> Iterator[Mention]:
        """Every place where `pattern` matches, first to last, at most `most`."""
        found = pattern.finditer(self) if isinstance(pattern, Words) else self._matches(pattern)
        return map(self._mention, islice(found, most))

    def _first(self, pattern: Pattern) -> Found | None:
        if not (self.may_hold(anchors_of(pattern.source)) and allowed(pattern.source)):
            return None
        match = pattern.search(self.flat)
        return None if match is None else read_match(match, self.flat)

    def _matches(self, pattern: Pattern) -> Iterator[Found]:
        if self.may_hold(anchors_of(pattern.source)) and allowed(pattern.source):
            for match in pattern.finditer(self.flat):
                yield read_match(match, self.flat)

    def _mention(self, found: Found) -> Mention:
        return Mention(found, self._line_at(found.span()[0]))

    def _line_at(self, offset: int) -> Line:
        return self.lines[bisect_right(self._starts, offset) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The result of one pass over text: its facts, the source line of each, and the text that causes are searched in.

    `recognised` names the kinds of report that were found ('collect_env', 'nvidia_smi', 'traceback', ...); empty means
    that the text holds nothing gpudoc knows. `kind` says whether it is about one machine at all. `origins` maps a
    fact's dotted name to 'collect_env line 18'. `traces` and `snapshots` are PyTorch's own dumps,
    `failures` are the Python exceptions in the text.
    """

    machine: Machine = field(default_factory=Machine)
    text: CleanText = field(default_factory=lambda: CleanText(()))
    recognised: tuple[str, ...] = ()
    kind: Kind = PASTE
    origins: Mapping[str, str] = field(default_factory=dict)
    traces: tuple[RankTrace, ...] = ()
    snapshots: tuple[MemorySnapshot, ...] = ()
    failures: tuple[ErrorChain, ...] = ()


_VERSION = Pattern(r"\d+(?:\.\d+)?")
_LONGEST, _MANY = 20, 3


def named_facts(reading: Reading) -> frozenset[str]:
    """Names of the facts in the text, without its numbers: 'torch.version', 'torch.version:2.1', 'kind:traceback'."""
    names = (name for name in _walk(reading.machine, "") if not name.startswith("probe"))
    return frozenset("_".join(name.split()) for name in (*names, *(f"kind:{kind}" for kind in reading.recognised)))


def _walk(value: object, path: str) -> Iterator[str]:
    if isinstance(value, Absent) or value is None:
        return
    if is_dataclass(value):
        for one in fields(value):
            yield from _walk(getattr(value, one.name), f"{path}.{one.name}" if path else one.name)
    elif isinstance(value, bool):
        yield f"{path}:{value}"
    elif isinstance(value, str):
        version = _VERSION.match(value)
        yield path
        yield f"{path}:{version[0] if version else value[:_LONGEST].lower()}"
    elif isinstance(value, Mapping):
        yield from (f"{path}.{key}" for key in value)
    elif not isinstance(value, tuple):
        yield path
    elif value:
        yield path
        yield f"{path}:{min(len(value), _MANY)}"


def unprefixed(text: str) -> tuple[str, str]:
    """The prefix that names the rank of a line, and the line without it and without the prefixes of loggers."""
    rank = ""
    for _ in range(5):
        if text.lstrip()[:1] not in _BEFORE and not _names(text):
            break
        found = _RANK.match(text)
        if found is not None:
            rank += found[1].rstrip(":|").strip()
        else:
            found = _NOISE.match(text)
        if found is None or found.end() == 0:
            break
        text = text[found.end() :]
    return rank, text


def _names(text: str) -> bool:
    """Whether the line may begin with the name of a container, a stream or a level."""
    return "| " in text[:80] or text.startswith(("std", "ERROR", "CRITICAL", "FATAL")) or " - ERROR" in text[:80]
