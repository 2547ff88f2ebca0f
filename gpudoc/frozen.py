"""A `dataclass` that creates frozen classes with slots in a tenth of the time: doctor has dozens of them.

`dataclasses` writes six functions for each class and compiles them, about 0.3 ms. Here, `__init__` is compiled when the
first object is made, and the others need no source. All else works as with `dataclasses`: `fields` and `replace` too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **wanted: bool) -> Any:
        """Like `dataclasses.dataclass`, but quicker if the class is frozen and has slots."""
        if not (wanted.get("frozen") and wanted.get("slots")) or wanted.keys() - {"frozen", "slots", "kw_only"}:
            return dataclasses.dataclass(cls, **wanted)
        is_kw_only = wanted.get("kw_only", False)
        return (lambda one: _make(one, is_kw_only)) if cls is None else _make(cls, is_kw_only)


def _make(cls: type, is_kw_only: bool) -> type:
    if any(map(dataclasses.is_dataclass, cls.__mro__[1:])):
        return dataclasses.dataclass(cls, frozen=True, slots=True, kw_only=is_kw_only)
    own = vars(cls)
    made: Any = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=True, kw_only=is_kw_only)

    def __init__(self: object, *given: object, **named: object) -> None:
        made.__init__ = _initializer(made)
        made.__init__(self, *given, **named)

    compared = _getter([one.name for one in fields(made) if one.compare])
    hashed = _getter([one.name for one in fields(made) if (one.compare if one.hash is None else one.hash)])

    def __eq__(self: object, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:
        return hash(hashed(self))

    methods: tuple[Callable[..., Any], ...] = (__init__, __eq__, __hash__, *_SHARED)
    for method in methods:
        if method.__name__ not in own:
            setattr(made, method.__name__, method)
    # `dataclasses` looks here whether the class is frozen, for example when another inherits from it
    made.__dataclass_params__ = _PARAMETERS
    return cast(type, made)


def _getter(names: list[str]) -> Callable[[object], object]:
    return attrgetter(*names) if names else lambda _: ()


def _initializer(cls: Any) -> Callable[..., None]:
    """The `__init__` of a class, written out and compiled."""
    known: dict[str, Any] = {"MISSING": MISSING}
    ordered: list[str] = []
    named: list[str] = []
    lines: list[str] = []
    for one in fields(cls):
        value = _parameter(one, known, named if one.kw_only else ordered)
        known[f"set_{one.name}"] = getattr(cls, one.name).__set__
        lines.append(f"    set_{one.name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    parameters = ", ".join(["self", *ordered, *(["*", *named] if named else [])])
    exec("\n".join([f"def __init__({parameters}):", *(lines or ["    pass"])]), known)  # noqa: S102  of names alone
    written: Callable[..., None] = known["__init__"]
    written.__qualname__ = f"{cls.__qualname__}.__init__"
    return written


def _parameter(one: Field[Any], known: dict[str, Any], parameters: list[str]) -> str:
    """Add the field's parameter if it has one; returns the expression for its value in the body."""
    name, default = one.name, f"default_{one.name}"
    made = one.default_factory is not MISSING
    known[default] = one.default_factory if made else one.default
    if not one.init:
        return f"{default}()" if made else default
    is_given = one.default is MISSING and not made
    parameters.append(name if is_given else f"{name}=MISSING" if made else f"{name}={default}")
    return f"{default}() if {name} is MISSING else {name}" if made else name


def __repr__(self: Any) -> str:
    shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{self.__class__.__qualname__}({shown})"


def __setattr__(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def __delattr__(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def __getstate__(self: Any) -> list[object]:
    return [getattr(self, one.name) for one in fields(self)]


def __setstate__(self: Any, state: list[object]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


@dataclasses.dataclass(frozen=True, slots=True)
class _Like:
    """A frozen class that the standard library made."""


_PARAMETERS = getattr(_Like, "__dataclass_params__")  # noqa: B009  it is known to no type checker
_SHARED = (__repr__, __setattr__, __delattr__, __getstate__, __setstate__)
