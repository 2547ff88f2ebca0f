"""Reads the rows of the causes: a file of YAML per area, cut into rows at once, each parsed when it is asked for.

A judgement needs few of the rows, and parsing all of them takes longer than a look at the machine.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import cast

from gpudoc.knowledge.tables import Row, parse_texts

# in the order in which a screen shows them; the file of an area has its name in small letters
AREAS = ("GPU", "driver", "PyTorch", "container", "memory", "data", "network", "program")
_ROW = re.compile(r"^- id: (\w+)\n(?:(?: .*)?\n)*", re.MULTILINE)


def rows_by_area(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """The rows of each area's file as they are written, by their ids."""
    texts = {area: (folder / f"{area.lower()}.yaml").read_text("utf-8") for area in AREAS}
    return {area: {match[1]: match[0] for match in _ROW.finditer(text)} for area, text in texts.items()}


@functools.cache
def own_rows() -> Mapping[str, Mapping[str, str]]:
    """The project's own rows by area and id."""
    return rows_by_area(cast(Path, resources.files("gpudoc.knowledge") / "causes"))


@functools.cache
def areas() -> Mapping[str, str]:
    """The area of each cause that has a row."""
    return {cause: area for area, rows in own_rows().items() for cause in rows}


def parse_row(text: str) -> Row:
    """One row as it is written; every value in it is a text."""
    (row,) = cast(list[Row], parse_texts(text))
    return row
