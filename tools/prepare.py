"""gpudoc/knowledge/prepared.tsv: results from the package's tables and patterns, which doctor need not compute then.

    python tools/prepare.py            # say whether it is out of date
    python tools/prepare.py --write

The name of a line comes from the text that it was made from, so a table that was changed since is parsed from its file,
and doctor only starts more slowly. Run this after a change under gpudoc/knowledge, or of a pattern of a reader or
finder.
"""

from __future__ import annotations

import argparse
import json
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

import gpudoc.doctor
import gpudoc.facts.readers
from gpudoc.doctor.causes.sign import Listed, as_words
from gpudoc.doctor.signatures import anchors_of_rows
from gpudoc.facts.readers import words as readers_words
from gpudoc.facts.readers.words import Words, take_apart
from gpudoc.knowledge import tables
from gpudoc.knowledge.cause_rows import own_rows
from gpudoc.knowledge.signature_rows import (
    CODE,
    FAMILIES,
    ROWS,
    SIGNATURES,
    VOCABULARY,
    Signature,
    frozen,
    load_folder,
    parse_rows,
    texts_of,
)
from gpudoc.own_files import read_own_file
from gpudoc.patterns import Pattern
from gpudoc.preparation import PREPARED, WAYS, key_of

SIGNATURE_FOLDER = tables.FOLDER / "signatures"
_SECTIONS = ("packagers", "places")


def lines() -> Iterator[str]:
    """Every line of the file, in its order."""
    # the old prepared results are not used to make the new ones
    readers_words.ways_of = take_apart
    for path in sorted(tables.FOLDER.glob("*.yaml")):
        text = read_own_file(path)
        yield from _line(tables.TABLE, tables.parse_table(text), text)
    for row in (row for rows in own_rows().values() for row in rows.values()):
        yield from _line(tables.TEXTS, tables.parse_texts(row), row)
    vocabulary = read_own_file(SIGNATURE_FOLDER / f"{VOCABULARY}.yaml")
    yield from _line(ROWS, parse_rows(vocabulary), vocabulary)
    everything: list[Signature] = []
    for families in (FAMILIES, (CODE,)):
        rows = load_folder(SIGNATURE_FOLDER, families=families)
        everything += rows
        value = {"rows": [frozen(row) for row in rows], "anchors": anchors_of_rows(rows)}
        yield f"{key_of(SIGNATURES, *texts_of(families))}\t{_json(value)}"
    sources = sorted({source for words in _own_words(everything) for source in words})
    yield f"{WAYS}\t{_json({source: _ways(source) for source in sources})}"


def _ways(source: str) -> object:
    """The ways of an expression; if there is only one, only its words."""
    ways = take_apart(source)
    return ways[0][1] if len(ways) == 1 else ways


def _line(kind: str, value: object, text: str) -> Iterator[str]:
    """One line; none for a table that JSON cannot represent exactly."""
    try:
        written = _json(value)
    except TypeError:
        return
    if json.loads(written) == value:
        yield f"{key_of(kind, text)}\t{written}"


def _json(value: object) -> str:
    # patterns name surrogates, which UTF-8 cannot encode
    return json.dumps(value, separators=(",", ":"))


def _own_words(rows: Iterable[Signature]) -> Iterator[Iterable[str]]:
    """The sources of all patterns: those of the rows, of the lists that are read by name, and of the code."""
    for row in rows:
        for patterns in (row.any, *row.all, *row.about, row.unless, row.frames):
            yield as_words(patterns).given
    for row in tables.read_table("places.yaml", _SECTIONS[0]) + tables.read_table("places.yaml", _SECTIONS[1]):
        yield as_words(tuple(row["any"])).given  # type: ignore[arg-type]
    for package in (gpudoc.facts.readers, gpudoc.doctor):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for value in vars(import_module(module.name)).values():
                yield from _patterns_in(value)


def _patterns_in(value: object) -> Iterator[Iterable[str]]:
    match value:
        case Listed():
            yield as_words(value.patterns).given
        case Words():
            yield value.given
        case Pattern():
            yield (value.source,)
        case dict():
            for one in value.values():
                yield from _patterns_in(one)
        case tuple() | list():
            for one in value:
                yield from _patterns_in(one)


def main() -> int:
    """Say whether the file is up to date, or write it; returns 1 if it is out of date."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--write", action="store_true")
    text = "".join(f"{line}\n" for line in lines())
    place = PREPARED.relative_to(Path.cwd()) if PREPARED.is_relative_to(Path.cwd()) else PREPARED
    if options.parse_args().write:
        PREPARED.write_text(text, "utf-8", newline="\n")
        print(f"{place}: {len(text):,} bytes")
        return 0
    if PREPARED.is_file() and PREPARED.read_text("utf-8") == text:
        print(f"{place} is up to date")
        return 0
    print(f"{place} is out of date: python tools/prepare.py --write", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
