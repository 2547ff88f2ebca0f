"""Texts that make a regular expression work: each of its parts again and again, and then what cannot match."""

from __future__ import annotations

import functools
import random
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    try:
        from re import _parser as parser
    except ImportError:  # Python 3.10
        import sre_parse as parser

# nothing in the project looks for it
END = "\x01"
_ANY = "x -a0._:/=,()\"'\n\u00e9"
_CLASSES = {"DIGIT": "0", "SPACE": " ", "WORD": "a", "NOT_DIGIT": "x", "NOT_SPACE": "x", "NOT_WORD": "-"}
_LONGEST_PUMP = 4
# of classes with several signs, some repeat a text and some do not
_VARIANTS = 3
_MOST = 100
# a repeat that ends after so many is bounded: a text of any length makes it work no longer
_BOUND = 100
_SINGLE = {"LITERAL", "NOT_LITERAL", "ANY", "IN", "AT", "GROUPREF"}

Tree = Sequence[tuple[Any, Any]]


def pumped(source: str, flags: int, length: int) -> Iterator[str]:
    """Texts of about `length` characters; the same ones each time."""
    for before, pump in _pumps(source, flags):
        yield before + pump * ((length - len(before)) // len(pump)) + END


def may_grow(source: str, flags: int) -> bool:
    """Whether the work at one place of a text may depend on its length.

    It does not where every repeat is bounded and none stands in another: then a search is linear by its form.
    """
    return _grows(parser.parse(source, flags), repeated=False)


def _grows(tree: Tree, repeated: bool) -> bool:
    for op, value in tree:
        name, again = str(op), repeated
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            again = repeated or int(value[1]) > 1
            if int(value[1]) > _BOUND or (repeated and int(value[1]) > 1):
                return True
        inner = _inside(name, value)
        if not inner and name not in _SINGLE:
            return True
        if any(_grows(one, again) for one in inner):
            return True
    return False


@functools.lru_cache(maxsize=1)
def _pumps(source: str, flags: int) -> list[tuple[str, str]]:
    rng = random.Random(repr(source))
    tree = parser.parse(source, flags)
    whole = {example(tree, rng, repeats) for repeats in (0, 1, 2)}
    pumps = {("", text) for text in whole} | {("", text[:-1]) for text in whole}
    pumps |= set(_parts(tree, "", rng)) | {("", sign) for sign in " a0-.\n"}
    usable = sorted(pump for pump in pumps if pump[1])
    return rng.sample(usable, min(_MOST, len(usable)))


def _parts(tree: Tree, before: str, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Every run of a few neighbours, at every depth, behind what must stand before it."""
    for start, (op, value) in enumerate(tree):
        reached = before + example(tree[:start], rng)
        for end in range(start + 1, min(len(tree), start + _LONGEST_PUMP) + 1):
            for _ in range(_VARIANTS):
                yield reached, example(tree[start:end], rng)
        for inner in _inside(str(op), value):
            yield from _parts(inner, reached, rng)


def _inside(op: str, value: Any) -> list[Tree]:
    match op:
        case "MAX_REPEAT" | "MIN_REPEAT" | "SUBPATTERN":
            return [value[-1]]
        case "BRANCH":
            return list(value[1])
        case "ASSERT" | "ASSERT_NOT":
            return [value[1]]
        case _:
            return []


def example(tree: Tree, rng: random.Random, repeats: int = 1) -> str:
    """A text that matches, as far as what stands around it allows; a repeat comes `repeats` times where it may."""
    said = ""
    for op, value in tree:
        match str(op):
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, inner = value
                said += "".join(example(inner, rng, repeats) for _ in range(max(least, min(int(most), repeats))))
            case "SUBPATTERN":
                said += example(value[-1], rng, repeats)
            case "BRANCH":
                said += example(rng.choice(value[1]), rng, repeats)
            case "ASSERT":
                said += example(value[1], rng, repeats) if value[0] > 0 else ""
            case "LITERAL":
                said += chr(value)
            case "ASSERT_NOT" | "AT" | "GROUPREF":
                pass
            case _:
                said += _one(str(op), value, rng)
    return said


def _one(op: str, value: Any, rng: random.Random) -> str:
    if op == "IN" and str(value[0][0]) != "NEGATE":
        op, value = rng.choice(value)
        op = str(op)
    match op:
        case "LITERAL":
            return chr(value)
        case "RANGE":
            return chr(rng.choice(value))
        case "CATEGORY":
            return _CLASSES[str(value).removeprefix("CATEGORY_")]
        case _:
            # what a class leaves out is found by asking
            fits = [sign for sign in _ANY if op == "ANY" or not _holds(value, sign)]
            return rng.choice(fits)


def _holds(value: Any, sign: str) -> bool:
    if isinstance(value, int):
        return chr(value) == sign
    return any(_is(str(op), one, sign) for op, one in value[1:])


def _is(op: str, value: Any, sign: str) -> bool:
    if op == "CATEGORY":
        name = str(value).removeprefix("CATEGORY_")
        known = {
            "DIGIT": r"\d",
            "SPACE": r"\s",
            "WORD": r"\w",
            "NOT_DIGIT": r"\D",
            "NOT_SPACE": r"\S",
            "NOT_WORD": r"\W",
        }
        return re.fullmatch(known[name], sign) is not None
    return value <= ord(sign) <= value if op == "LITERAL" else value[0] <= ord(sign) <= value[1]
