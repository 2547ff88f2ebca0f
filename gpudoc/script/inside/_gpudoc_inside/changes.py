"""Whether a data set object was changed from one epoch to the next, as far as its own fields tell."""

from __future__ import annotations

import sys
from typing import Any

_PLAIN = (bool, int, float, str, bytes, type(None))
_MAX_DEPTH = 3
_MAX_ITEMS = 1000
_MAX_BYTES = 1 << 20


def fingerprint(thing: Any) -> dict[str, Any]:
    """The fields of an object and of those within it, each as a value that is equal as long as nothing was changed."""
    return {name: _mark(value, 1) for name, value in getattr(thing, "__dict__", {}).items()}


def difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    """The names of the fields that differ."""
    names = sorted(name for name in {*before, *now} if before.get(name, before) != now.get(name, now))
    return ", ".join(names)


def _mark(value: Any, depth: int) -> Any:
    if isinstance(value, _PLAIN):
        return value
    tensor = getattr(sys.modules.get("torch"), "Tensor", ())
    if isinstance(value, tensor):
        return (id(value), value._version)
    number = getattr(value, "nbytes", None)
    if isinstance(number, int) and hasattr(value, "tobytes"):
        # what is changed in place shows in the values alone
        return (id(value), hash(value.tobytes()) if number <= _MAX_BYTES else number)
    if depth >= _MAX_DEPTH:
        return id(value)
    if isinstance(value, (list, tuple)):
        return (id(value), len(value), tuple(_mark(item, depth + 1) for item in value[:_MAX_ITEMS]))
    if isinstance(value, dict):
        return _of_dict(value, depth)
    fields = getattr(value, "__dict__", None)
    return (id(value), _of_dict(fields, depth)) if isinstance(fields, dict) else id(value)


def _of_dict(value: dict[Any, Any], depth: int) -> tuple[Any, ...]:
    items = list(value.items())[:_MAX_ITEMS]
    return (len(value), tuple((str(name), _mark(item, depth + 1)) for name, item in items))
