"""What the tables of knowledge/ come to, worked out before: YAML that was parsed, patterns that were taken apart.

`tools/prepare.py` writes prepared.tsv. Each of its lines is known by the text that it was made of: a table that was
changed since has none, and is parsed as it stands.
"""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from gpudoc.own_files import read_own_file

PREPARED = Path(__file__).parent / "knowledge" / "prepared.tsv"
# the one line that is known by its name: each part of it stands under the text that it was made of
WAYS = "ways"


def key_of(kind: str, texts: Iterable[str]) -> str:
    """The name under which the line stands that was made of these texts in this manner."""
    check = length = 0
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        check, length = zlib.crc32(data, check), length + len(data)
    return f"{kind}-{check:08x}-{length}"


def find_prepared(kind: str, *texts: str) -> object | None:
    """What was made of these texts in this manner; None where that was not prepared."""
    line = _lines().get(key_of(kind, texts))
    return None if line is None else cast(object, json.loads(line))


def prepared_ways() -> Mapping[str, list[Any]]:
    """The ways of the tables' patterns and of those in the code: of an expression with one way its words alone."""
    line = _lines().get(WAYS)
    return cast(Mapping[str, list[Any]], {} if line is None else json.loads(line))


@functools.cache
def _lines() -> Mapping[str, str]:
    try:
        text = read_own_file(PREPARED)
    except OSError:
        return {}
    # no other sign of a line's end, and a text may hold those
    pairs = (line.partition("\t") for line in text.split("\n"))
    return {key: value for key, _, value in pairs}
