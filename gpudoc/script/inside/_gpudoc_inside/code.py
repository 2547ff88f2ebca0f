"""What the user's own code would do, read from its byte code: nothing of it is run."""

from __future__ import annotations

import dis
import functools
import inspect
import types
from typing import Any, Iterator, Sequence

# what draws from the global random numbers, by any of the usual libraries
RANDOM = frozenset(
    {
        *("rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "randperm", "random", "random_"),
        *("randrange", "uniform", "uniform_", "normal_", "shuffle", "choice", "choices", "permutation", "permuted"),
        *("multinomial", "bernoulli", "bernoulli_", "gauss", "standard_normal"),
    }
)
_NOT_OWN = ("builtins", "torch", "typing", "abc", "collections", "numpy", "enum", "functools", "PIL", "io", "pathlib")
_MAX_OBJECTS = 200
_MAX_ITEMS = 20
_MAX_DEPTH = 4


def mentions(thing: Any, names: set[str]) -> bool:
    """Whether the code of an object, of what it holds, or of the functions that it calls, uses one of the names."""
    return any(names & set(code.co_names) for held in parts(thing) for code in codes(held))


def parts(thing: Any) -> Iterator[Any]:
    """An object whose code is the user's, and those that it holds: transforms in a data set, a data set in another."""
    seen: set[int] = set()
    waiting = [(thing, 0)]
    while waiting and len(seen) < _MAX_OBJECTS:
        held, depth = waiting.pop(0)
        if id(held) in seen or held is None:
            continue
        seen.add(id(held))
        if isinstance(held, dict):
            inner: list[Any] = list(held.values())[:_MAX_ITEMS]
        elif isinstance(held, (list, tuple)):
            inner = list(held[:_MAX_ITEMS])
        elif isinstance(held, functools.partial):
            inner = [held.func, *held.args, *held.keywords.values()]
        elif _is_function(held) or _is_own(type(held)):
            yield held
            inner = list(getattr(held, "__dict__", {}).values())
            inner += [cell.cell_contents for cell in getattr(held, "__closure__", None) or () if _is_filled(cell)]
        else:
            continue
        if depth < _MAX_DEPTH:
            waiting += [(item, depth + 1) for item in inner]


def codes(thing: Any) -> Iterator[types.CodeType]:
    """The byte code of a function or of an object's methods, of functions within them and of those that they call."""
    waiting = [_function(thing)] if _is_function(thing) else list(methods(type(thing)).values())
    seen: set[types.CodeType] = set()
    while waiting:
        function = waiting.pop()
        for code in _within(function.__code__):
            if code in seen:
                continue
            seen.add(code)
            yield code
            called = [function.__globals__.get(name) for name in code.co_names]
            waiting += [item for item in called if isinstance(item, types.FunctionType) and _is_own(item)]


def methods(kind: type) -> dict[str, types.FunctionType]:
    """The methods that a class has from code that is neither torch's nor Python's, by name."""
    found: dict[str, types.FunctionType] = {}
    for base in reversed(kind.__mro__):
        if _is_own(base):
            for name, value in vars(base).items():
                function = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
                if isinstance(function, types.FunctionType):
                    found[name] = function
    return found


def stores(thing: Any, *entries: str) -> str | None:
    """`Class.method` of the first method that stores into its object and runs when one of `entries` does; or None."""
    known = methods(type(thing))
    waiting, seen = [name for name in entries if name in known], set()
    while waiting:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        code = known[name].__code__
        if _stores_into(code, code.co_varnames[:1]):
            return f"{type(thing).__name__}.{name}"
        waiting += [called for called in code.co_names if called in known]
    return None


def draws_on_the_way(function: types.FunctionType) -> bool:
    """Whether a generator draws random numbers between its items, and not only before the first one."""
    code = function.__code__
    if not code.co_flags & inspect.CO_GENERATOR:
        return False
    steps = list(dis.get_instructions(code))
    draws = [step.offset for step in steps if step.argval in RANDOM]
    yields = [step.offset for step in steps if step.opname in ("YIELD_VALUE", "YIELD_FROM", "SEND")]
    if not draws or not yields:
        return False
    if max(draws) > min(yields):
        return True
    jumps = dis.hasjrel + dis.hasjabs
    back = [step.argval for step in steps if step.opcode in jumps and step.offset > min(yields)]
    return any(isinstance(target, int) and target <= max(draws) for target in back)


def _stores_into(code: types.CodeType, first: Sequence[str]) -> bool:
    if not first:
        return False
    before: Any = None
    for step in dis.get_instructions(code):
        if step.opname == "STORE_ATTR" and before is not None and before.opname.startswith("LOAD_FAST"):
            # newer Pythons load two at once
            loaded = before.argval[-1] if isinstance(before.argval, tuple) else before.argval
            if loaded == first[0]:
                return True
        before = step
    return False


def _within(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _within(constant)


def _function(thing: Any) -> types.FunctionType:
    found: types.FunctionType = getattr(thing, "__func__", thing)
    return found


def _is_function(thing: Any) -> bool:
    return isinstance(thing, (types.FunctionType, types.MethodType)) and _is_own(thing)


def _is_own(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "builtins")).partition(".")[0] not in _NOT_OWN


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
