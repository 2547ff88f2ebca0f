"""Reads the signatures: rows of YAML, a file per family, that say what a text must contain to show a cause.

A pattern is the text that a program prints, or a regular expression after `re:`; both ignore case, and a blank
matches any white space, so a message that was wrapped still matches. `$name` stands for a list of vocabulary.yaml.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Any, Literal, cast

from gpudoc.frozen import dataclass
from gpudoc.knowledge.tables import FOLDER, Row, parse_texts
from gpudoc.own_files import read_own_bytes, read_own_file
from gpudoc.patterns import MULTILINE, Pattern
from gpudoc.preparation import find_prepared

Severity = Literal["broken", "warning", "info"]

FAMILIES = (
    "driver",
    "hardware",
    "container",
    "install",
    "memory",
    "compute",
    "ranks",
    "scheduler",
    "data",
    "warnings",
    "speed",
)
# errors that programs raise, which are searched for in exceptions only
CODE = "code"
_FOLDER = FOLDER / "signatures"
VOCABULARY = "vocabulary"
# the two kinds of prepared data: the parsed rows of a file, and the rows of several families with their anchors
ROWS, SIGNATURES = "rows", "signatures"
REGEX = "re:"
LIST = "$"
# a list of vocabulary may name another list, and no more
_DEEPEST = 3
# examples are for the tests and for readers of the file: without them, parsing takes a third of the time
_EXAMPLES = Pattern(r"^  (?:examples|not):\n(?:(?: {4}.*)?\n)+", MULTILINE)


class RowError(ValueError):
    """A row that cannot be used: which file and row, and what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One message: `cause` is found with `confidence` if a text contains the patterns as the row says.

    `any`: one of these is the evidence. `all`: each of these is there too (one of each list). `about`: like `all`, but
    too common to be shown. `unless`: none of these is. `when_fact` and `unless_fact` name facts by their dotted path.
    `frames`: one of these stands in a frame of the exception ('file function'); without frames the row does not fire.
    `share`: the text states at least this many percent of the time.
    """

    id: str
    cause: str
    any: tuple[str, ...]
    confidence: float
    source: str
    all: tuple[tuple[str, ...], ...] = ()
    about: tuple[tuple[str, ...], ...] = ()
    unless: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    when_fact: Mapping[str, str] = field(default_factory=dict)
    unless_fact: Mapping[str, str] = field(default_factory=dict)
    share: float = 0.0
    severity: Severity = "broken"
    title: str = ""
    explains: tuple[str, ...] = ()
    fact: str = "text"
    examples: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


class OwnRows(Sequence[Signature]):
    """The rows of some families without their examples; a prepared row becomes a Signature at its first use.

    `anchors` maps words in small letters to the places of rows: a text can show a row only if it contains one of the
    row's words. Rows without a known word are under ''. None if nothing was prepared.
    """

    def __init__(self, families: Sequence[str] = FAMILIES) -> None:
        known = cast(Any, find_prepared(SIGNATURES, *texts_of(families)))
        self.anchors: Mapping[str, Sequence[int]] | None = None if known is None else known["anchors"]
        self._rows: list[Any] = list(load_folder(_FOLDER, families=families)) if known is None else known["rows"]

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401  one row or several, as of any sequence
        row = self._rows[place]
        if isinstance(row, dict):
            row = self._rows[place] = _thawed(row)
        return row

    def __len__(self) -> int:
        return len(self._rows)


def texts_of(families: Sequence[str]) -> tuple[bytes, ...]:
    """The bytes of the files from which the rows of these families are made."""
    return tuple(read_own_bytes(_FOLDER / f"{name}.yaml") for name in (VOCABULARY, *families))


def frozen(row: Signature) -> Row:
    """A row in the form that JSON holds for `OwnRows`: without default values."""
    return {
        one.name: value for one in fields(row) if (value := getattr(row, one.name)) not in ((), {}, "", one.default)
    }


def _thawed(row: dict[str, Any]) -> Signature:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    for name in _GROUPS & row.keys():
        values[name] = tuple(map(tuple, row[name]))
    return Signature(**values)


_GROUPS = {"all", "about"}


@functools.cache
def vocabulary(name: str) -> tuple[str, ...]:
    """The patterns of one list of vocabulary.yaml; RowError when there is none of this name."""
    return _expanded((LIST + name,), _own_lists(), "vocabulary")


def load_folder(folder: Path, *, examples: bool = False, families: Sequence[str] = FAMILIES) -> tuple[Signature, ...]:
    """The rows of the families in `folder`; RowError for a row with an unknown key or without a required one."""
    lists = _lists(folder, examples=examples)
    rows = []
    for family in families:
        path = folder / f"{family}.yaml"
        for row in _rows(path, examples=examples):
            rows.append(_signature(row, lists, f"{path.name}: {row.get('id', '?')}"))
    return tuple(rows)


def _rows(path: Path, *, examples: bool) -> Sequence[Row]:
    text = read_own_file(path)
    known = None if examples else find_prepared(ROWS, text)
    return cast(Sequence[Row], parse_rows(text, examples=examples) if known is None else known)


def parse_rows(text: str, *, examples: bool = False) -> object:
    """The rows of a file as they stand in it."""
    return parse_texts(text if examples else _EXAMPLES.sub("", text)) or ()


@functools.cache
def stated_lists() -> tuple[str, ...]:
    """The names of the lists of vocabulary.yaml whose words state a fact."""
    return tuple(str(row["id"]) for row in _vocabulary(_FOLDER, examples=False) if row.get("stated"))


@functools.cache
def _own_lists() -> Mapping[str, tuple[str, ...]]:
    return _lists(_FOLDER, examples=False)


def _lists(folder: Path, *, examples: bool) -> Mapping[str, tuple[str, ...]]:
    rows = _vocabulary(folder, examples=examples)
    return {str(row["id"]): _texts(row["any"], f"{VOCABULARY}.yaml: {row['id']}") for row in rows}


@functools.cache
def _vocabulary(folder: Path, *, examples: bool) -> Sequence[Row]:
    return _rows(folder / f"{VOCABULARY}.yaml", examples=examples)


def _signature(row: Row, lists: Mapping[str, tuple[str, ...]], where: str) -> Signature:
    known = {one.name for one in fields(Signature)} - {"others"} | {"not"}
    if unknown := row.keys() - known:
        raise RowError(f"{where}: unknown key {', '.join(sorted(unknown))}")
    if missing := {"id", "cause", "any", "confidence", "source"} - row.keys():
        raise RowError(f"{where}: lacks {', '.join(sorted(missing))}")

    def patterns(key: str) -> tuple[str, ...]:
        return _expanded(_texts(row.get(key, ()), where), lists, where)

    def groups(key: str) -> tuple[tuple[str, ...], ...]:
        given = cast(Sequence[object], row.get(key, ()))
        return tuple(_expanded(_texts(one, where), lists, where) for one in given)

    return Signature(
        id=str(row["id"]),
        cause=str(row["cause"]),
        any=patterns("any"),
        all=groups("all"),
        about=groups("about"),
        unless=patterns("unless"),
        frames=patterns("frames"),
        when_fact=cast(Mapping[str, str], row.get("when_fact", {})),
        unless_fact=cast(Mapping[str, str], row.get("unless_fact", {})),
        share=float(str(row.get("share", 0))),
        confidence=float(str(row["confidence"])),
        severity=cast(Severity, row.get("severity", "broken")),
        title=str(row.get("title", "")),
        explains=_texts(row.get("explains", ()), where),
        fact=str(row.get("fact", "text")),
        source=str(row["source"]),
        examples=_texts(row.get("examples", ()), where),
        others=_texts(row.get("not", ()), where),
    )


def _texts(value: object, where: str) -> tuple[str, ...]:
    """One text or several; YAML reads a pattern with a colon and a blank as a mapping if it is not quoted."""
    given = (value,) if isinstance(value, str) else tuple(cast(Sequence[object], value))
    for one in given:
        if not isinstance(one, str):
            raise RowError(f"{where}: {one!r} is not text; put it in quotes")
    return cast(tuple[str, ...], given)


def _expanded(patterns: Sequence[str], lists: Mapping[str, tuple[str, ...]], where: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_expand(patterns, lists, where, _DEEPEST)))


def _expand(patterns: Sequence[str], lists: Mapping[str, tuple[str, ...]], where: str, deep: int) -> Iterator[str]:
    for pattern in patterns:
        if not pattern.startswith(LIST):
            yield pattern
        elif pattern[1:] in lists and deep:
            yield from _expand(lists[pattern[1:]], lists, where, deep - 1)
        else:
            raise RowError(f"{where}: no list {pattern} in {VOCABULARY}.yaml")
