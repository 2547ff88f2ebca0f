"""The facts of a reading as names, for what is learned from texts: which were stated, and the value of short ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from gpudoc.facts.model import Absent
from gpudoc.facts.readers.model import Reading
from gpudoc.patterns import Pattern

_VERSION = Pattern(r"\d+(?:\.\d+)?")
_LONGEST, _MANY = 20, 3


def named_facts(reading: Reading) -> frozenset[str]:
    """'torch.version', 'torch.version:2.1', 'gpus:2', 'kind:traceback': what the text states, without numbers of it."""
    names = (name for name in _walk(reading.machine, "") if not name.startswith("probe"))
    return frozenset("_".join(name.split()) for name in (*names, *(f"kind:{kind}" for kind in reading.recognised)))


def _walk(value: object, path: str) -> Iterator[str]:
    if isinstance(value, Absent) or value is None:
        return
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _walk(getattr(value, field.name), f"{path}.{field.name}" if path else field.name)
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
