"""Reads the tables next to this file."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar, cast

from gpudoc.own_files import read_own_file
from gpudoc.preparation import find_prepared

FOLDER = Path(__file__).parent
Row = Mapping[str, object]
R = TypeVar("R")
# the two ways to parse YAML
TABLE, TEXTS = "table", "texts"


def read_table(name: str, section: str) -> tuple[Row, ...]:
    """The rows under `section` of the table `name`."""
    return tuple(cast(list[Row], _load(name)[section]))


def read_rows(name: str, section: str, kind: type[R]) -> tuple[R, ...]:
    """The rows under `section` as records of `kind`, whose fields are the table's columns."""
    return tuple(kind(**row) for row in read_table(name, section))


def read_list(name: str, key: str) -> tuple[str, ...]:
    """A list of words of the table `name`."""
    return tuple(str(word) for word in cast(list[object], _load(name)[key]))


@functools.cache
def _load(name: str) -> Mapping[str, object]:
    text = read_own_file(FOLDER / name)
    known = find_prepared(TABLE, text)
    return cast(Mapping[str, object], parse_table(text) if known is None else known)


def parse_table(text: str) -> object:
    """YAML with its numbers, dates and switches."""
    import yaml

    # the C loader is six times faster, and doctor counts milliseconds
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return cast(object, yaml.load(text, Loader=loader))  # noqa: S506  both are safe loaders


def read_texts(text: str) -> object:
    """YAML in which every value is a text, parsed now unless it was prepared."""
    known = find_prepared(TEXTS, text)
    return parse_texts(text) if known is None else known


def parse_texts(text: str) -> object:
    """YAML in which every value is a text: without the search for dates and numbers, parsing takes half the time."""
    import yaml

    return yaml.load(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))  # noqa: S506  texts only


def read_text(name: str, key: str) -> str:
    """One text of the table `name`, such as its source."""
    return str(_load(name)[key])
