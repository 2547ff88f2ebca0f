"""Results that were computed in advance from the tables of knowledge/: parsed YAML, and patterns split into parts.

`tools/prepare.py` writes prepared.tsv. The name of each line comes from the text that the line was made from: a table
that was changed since has no line, and is parsed from its file.
"""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from gpudoc.own_files import read_own_bytes

PREPARED = Path(__file__).parent / "knowledge" / "prepared.tsv"
# the one line with a fixed name: each part of it has the expression that it was made from as its key
WAYS = "ways"


def key_of(kind: str, *texts: str | bytes) -> str:
    """The name of the line that was made from these texts, for this kind of result."""
    check = length = 0
    for text in texts:
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        check, length = zlib.crc32(data, check), length + len(data)
    return f"{kind}-{check:08x}-{length}"


def find_prepared(kind: str, *texts: str | bytes) -> object | None:
    """The result of this kind that was made from these texts; None if it was not prepared."""
    line = _lines().get(key_of(kind, *texts).encode())
    return None if line is None else cast(object, json.loads(line))


def prepared_ways() -> Mapping[str, list[Any]]:
    """The ways of the tables' patterns and of those in the code: for an expression with one way, only its words."""
    line = _lines().get(WAYS.encode())
    return {} if line is None else cast(Mapping[str, list[Any]], json.loads(line))


@functools.cache
def _lines() -> Mapping[bytes, bytes]:
    try:
        data = read_own_bytes(PREPARED)
    except OSError:
        return {}
    pairs = (line.partition(b"\t") for line in data.split(b"\n"))
    return {key: value for key, _, value in pairs}
