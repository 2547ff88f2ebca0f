"""What the tables of knowledge/ come to, worked out before: YAML that was parsed, patterns that were taken apart.

`tools/prepare.py` writes prepared.tsv. Each of its lines is known by the text that it was made of: a table that was
changed since has none, and is parsed as it stands.
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
# the one line that is known by its name: each part of it stands under the expression that it was made of
WAYS = "ways"


def key_of(kind: str, *texts: str | bytes) -> str:
    """The name under which the line stands that was made of these texts in this manner."""
    check = length = 0
    for text in texts:
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        check, length = zlib.crc32(data, check), length + len(data)
    return f"{kind}-{check:08x}-{length}"


def find_prepared(kind: str, *texts: str | bytes) -> object | None:
    """What was made of these texts in this manner; None where that was not prepared."""
    line = _lines().get(key_of(kind, *texts).encode())
    return None if line is None else cast(object, json.loads(line))


def prepared_ways() -> Mapping[str, list[Any]]:
    """The ways of the tables' patterns and of those in the code: of an expression with one way its words alone."""
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
