"""Reads the rows of the causes: a YAML file per area, cut into rows at once; each row is parsed when it is needed.

A judgement needs few of the rows, and parsing all of them takes longer than examining the machine.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from gpudoc.knowledge.tables import FOLDER, Row, read_table, read_texts
from gpudoc.own_files import read_own_file
from gpudoc.patterns import Pattern

# in the order in which a screen shows them; the file of an area has its name in small letters
AREAS = (
    "GPU",
    "driver",
    "PyTorch",
    "container",
    "memory",
    "data",
    "network",
    "program",
    "scheduler",
    "code",
    "warnings",
    "fleet",
)
_ELSE = "program"
_BEGIN = "\n- id: "
_RULED_OUT = r"\n  ruled_out_by:\n((?: +- \S+\n)+)"


def rows_by_area(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """The unparsed rows of each area's file, by their ids."""
    texts = {area: read_own_file(folder / f"{area.lower()}.yaml") for area in AREAS}
    return {area: cut_rows(text) for area, text in texts.items()}


def cut_rows(text: str) -> Mapping[str, str]:
    """The unparsed rows of a file of causes, by their ids."""
    rows = {}
    for part in f"\n{text}".split(_BEGIN)[1:]:
        # a comment between two rows belongs to neither
        row = part.partition("\n#")[0].removesuffix("\n")
        rows[row.partition("\n")[0]] = f"{_BEGIN[1:]}{row}\n"
    return rows


@functools.cache
def own_rows() -> Mapping[str, Mapping[str, str]]:
    """The project's own rows by area and id."""
    return rows_by_area(FOLDER / "causes")


@functools.cache
def areas() -> Mapping[str, str]:
    """The area of each cause that has a row."""
    return {cause: area for area, rows in own_rows().items() for cause in rows}


def area_of(cause_id: str) -> str:
    """The area of a cause, 'program' for a cause without a row."""
    return areas().get(cause_id, _ELSE)


def count_by_area(ids: Iterable[str]) -> dict[str, int]:
    """How many of the causes belong to each area, in the order in which areas are shown; without empty areas."""
    counts = Counter(map(area_of, ids))
    return {area: counts[area] for area in AREAS if counts[area]}


@functools.cache
def ruled_out_by() -> Mapping[str, tuple[str, ...]]:
    """The facts that rule a cause out if a text has them all; 'gpus.x' stands for each GPU of the text."""
    found = {cause: Pattern(_RULED_OUT).search(row) for rows in own_rows().values() for cause, row in rows.items()}
    return {cause: tuple(match[1].split()[1::2]) for cause, match in found.items() if match is not None}


def facts_asked_for() -> Mapping[str, str]:
    """The fact that a cause rests on if there is no /proc, /sys and /dev to read."""
    rows = read_table("asked.yaml", "asked")
    return {str(cause): str(row["fact"]) for row in rows for cause in cast(list[str], row["causes"])}


def parse_row(text: str) -> Row:
    """One row, parsed; every value in it is a text."""
    (row,) = cast(list[Row], read_texts(text))
    return row
