"""Frozen records as plain JSON values and back: a Machine, the `facts` of gpudoc's documents, and what is said of it.

A field with another name in the document has that name as its key (`metadata={"key": "from"}`); a field with the key
None is never written.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Mapping
from typing import Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gpudoc.facts.model import NOT_READ, Absent, Machine

D = TypeVar("D")
_ABSENT_KEY = "absent"
_HINTS: dict[type, dict[str, object]] = {}


def dump(machine: Machine) -> dict[str, object]:
    """The machine as JSON values; a fact that was never read is left out, any other absence is {"absent": reason}."""
    return dump_facts(machine)


def load(document: Mapping[str, object]) -> Machine:
    """The machine of `dump`'s result; unknown keys are skipped; a value of the wrong type is Absent with a reason."""
    return load_facts(Machine, document)


def dump_facts(facts: object) -> dict[str, object]:
    """Any dataclass of facts in the same form as a machine."""
    plain = _dump(facts)
    assert isinstance(plain, dict)
    return plain


def _dump(value: object) -> object:
    if isinstance(value, Absent):
        return {_ABSENT_KEY: value.reason}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((key, getattr(value, field.name)) for key, field in _fields(type(value)))
        return {key: plain for key, item in fields if item != NOT_READ and (plain := _dump(item)) != {}}
    if isinstance(value, Mapping):
        return {str(key): _dump(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_dump(item) for item in value]
    return value


def _hints(kind: type) -> dict[str, object]:
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind)
    return _HINTS[kind]


def _fields(kind: type) -> Iterator[tuple[str, dataclasses.Field[object]]]:
    for field in dataclasses.fields(kind):
        key = field.metadata.get("key", field.name)
        if key is not None:
            yield key, field


def load_facts(kind: type[D], document: Mapping[str, object]) -> D:
    """The dataclass of facts in `document`; ValueError if a field without a default is missing."""
    hints = _hints(kind)
    given: dict[str, object] = {}
    lacking = []
    for key, field in _fields(kind):
        if key in document:
            given[field.name] = _load(hints[field.name], document[key])
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and (field.name not in given or isinstance(given[field.name], Absent)):
            lacking.append(key)
    if lacking:
        raise _WrongShapeError(f"{kind.__name__} without {', '.join(lacking)}")
    return kind(**given)


class _WrongShapeError(ValueError):
    """A value that does not have the type its fact has."""


def _load(hint: object, value: object) -> object:
    try:
        return _convert(hint, value)
    except (_WrongShapeError, TypeError, ValueError) as problem:
        if hint_allows_absence(hint):
            return Absent(f"unreadable in the document: {problem}")
        return _empty(hint, problem)


def hint_allows_absence(hint: object) -> bool:
    """Whether a field of this type may hold Absent."""
    return get_origin(hint) in (Union, types.UnionType) and Absent in get_args(hint)


def _empty(hint: object, problem: Exception) -> object:
    origin = get_origin(hint)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint()
    raise _WrongShapeError(str(problem))


def _convert(hint: object, value: object) -> object:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if isinstance(value, Mapping) and set(value) == {_ABSENT_KEY} and Absent in arguments:
            return Absent(str(value[_ABSENT_KEY]))
        wanted = [a for a in arguments if a not in (Absent, type(None))]
        return None if value is None and type(None) in arguments else _convert(wanted[0], value)
    if origin is Literal:
        if value not in arguments:
            raise _WrongShapeError(f"{value!r} is not one of {', '.join(map(str, arguments))}")
        return value
    if origin is tuple:
        return _convert_tuple(arguments, value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise _WrongShapeError(f"expected an object, not {type(value).__name__}")
        return {str(key): _convert(arguments[1], item) for key, item in value.items()}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise _WrongShapeError(f"expected an object, not {type(value).__name__}")
        return load_facts(hint, value)
    return _convert_scalar(hint, value)


def _convert_tuple(arguments: tuple[object, ...], value: object) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise _WrongShapeError(f"expected a list, not {type(value).__name__}")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_convert(arguments[0], item) for item in value)
    if len(arguments) != len(value):
        raise _WrongShapeError(f"expected {len(arguments)} items, not {len(value)}")
    return tuple(_convert(a, item) for a, item in zip(arguments, value, strict=True))


def _convert_scalar(hint: object, value: object) -> object:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is object or (
        isinstance(hint, type) and isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    ):
        return value
    raise _WrongShapeError(f"expected {getattr(hint, '__name__', hint)}, not {type(value).__name__}")
