"""Every expression that Python's own engine searches for: how its work grows with a text made to keep it busy."""

from __future__ import annotations

import ast
import importlib
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest

import gpudoc
from gpudoc.doctor import registry
from gpudoc.doctor.causes import sign
from gpudoc.doctor.causes.sign import as_words
from gpudoc.facts.readers import genre
from gpudoc.facts.readers.words import Words, _compile
from gpudoc.knowledge import signature_rows, stacks, tables
from gpudoc.patterns import DOTALL, IGNORECASE, MULTILINE, Linear, Pattern, deadline
from tests.pumped import may_grow, pumped

ROOT = Path(gpudoc.__file__).parent
# these run in another Python or stand above a script, and read what gpudoc or that Python wrote
ELSEWHERE = ("script/inside", "script/keeper.py", "script/walls.py", "facts/examined_python.py")
# takes our own expressions apart
OF_OUR_OWN = ("facts/readers/words.py",)
SHORT, LONG = 1_000, 8_000
# work that grows with the length has the exponent 1, with its square 2
MOST = 1.5
# it is not asked how a search grew that cost next to nothing
_NOTHING_S = 0.002


class Expression(NamedTuple):
    """A regular expression as it is used: with `search`, `match` or `fullmatch`."""

    source: str
    flags: int
    method: str


def exponent(expression: Expression) -> float:
    """The power of the length with which the work grows on the first text where that is too much; 0 on none."""
    if not may_grow(expression.source, expression.flags):
        return 0.0
    search = getattr(Pattern(expression.source, expression.flags), expression.method)
    texts = (pumped(expression.source, expression.flags, length) for length in (SHORT, LONG))
    with deadline() as limit:
        for short, long in zip(*texts, strict=True):
            if (most := work(search, long, 1)) <= _NOTHING_S or (
                most := min(most, work(search, long, 2))
            ) <= _NOTHING_S:
                continue
            if limit.given_up:
                return math.inf
            power = math.log(most / work(search, short, 5)) / math.log(LONG / SHORT)
            if power > MOST:
                return power
    return 0.0


def work(search: Callable[[str], object], text: str, times: int) -> float:
    """CPU seconds of a search, the least of several."""
    seen = []
    for _ in range(times):
        began = time.thread_time()
        search(text)
        seen.append(time.thread_time() - began)
    return min(seen)


def in_code() -> dict[Expression, str]:
    """Every expression that a file of gpudoc names, and where."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text("utf-8")
        if name.startswith((*ELSEWHERE, *OF_OUR_OWN)) or name == "patterns.py" or "Pattern(" not in text:
            continue
        names = vars(importlib.import_module(f"gpudoc.{name[:-3].replace('/', '.')}".removesuffix(".__init__")))
        tree = ast.parse(text)
        used = methods(tree)
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Pattern":
                flags = evaluated(call.args[1], names) if len(call.args) > 1 else 0
                for source in sources(call.args[0], names):
                    for method in used.get((call.lineno, call.col_offset), {"search"}):
                        found[Expression(source, int(flags), method)] = f"{name}:{call.lineno}"
    return found


def methods(tree: ast.Module) -> dict[tuple[int, int], set[str]]:
    """How each call of Pattern that a name or an attribute access follows is used: where it stands, and the methods."""
    by_name: dict[str, set[str]] = {}
    made: dict[tuple[int, int], set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in _METHODS:
            by_name.setdefault(node.value.id, set()).add(_METHODS[node.attr])
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call) and node.attr in _METHODS:
            made[node.value.lineno, node.value.col_offset] = {_METHODS[node.attr]}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
            used = by_name.get(node.targets[0].id)
            # handed to a function, as those of a text are: searched
            if used is not None and len(loads(tree, node.targets[0].id)) == accesses(tree, node.targets[0].id):
                made[node.value.lineno, node.value.col_offset] = used
    return made


_METHODS = {"match": "match", "fullmatch": "fullmatch"} | dict.fromkeys(
    ("search", "findall", "finditer", "split", "sub"), "search"
)


def loads(tree: ast.Module, name: str) -> list[ast.Name]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]


def accesses(tree: ast.Module, name: str) -> int:
    return sum(
        isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == name for n in ast.walk(tree)
    )


def evaluated(node: ast.expr, names: dict) -> Any:
    return eval(compile(ast.Expression(node), "pattern", "eval"), dict(names))


def sources(node: ast.expr, names: dict) -> list[str]:
    """The expression; of one that a function puts together, with a word in the place of each name."""
    try:
        return [str(evaluated(node, names))]
    except NameError:
        if isinstance(node, ast.JoinedStr):
            return ["".join(str(part.value) if isinstance(part, ast.Constant) else "word" for part in node.values)]
        # a row's: see in_tables
        return []


def in_tables() -> dict[Expression, str]:
    """Every expression that stands in a table of knowledge/ and is no message's."""
    found = {}
    for section in get_args(stacks.Section):
        for row in tables.read_table("stacks.yaml", section):
            for key in ("file", "function", "line"):
                found[Expression(str(row.get(key, "")), 0, "search")] = f"stacks.yaml {section}"
    for row in tables.read_table("gpu_names.yaml", "names"):
        found[Expression(str(row["name"]), IGNORECASE, "search")] = "gpu_names.yaml"
    for row in tables.read_table("deciding.yaml", "errors"):
        found[Expression(str(row.get("says", "")), IGNORECASE, "search")] = "deciding.yaml"
    for row in tables.read_table("rank_signs.yaml", "signs"):
        found[Expression(str(row.get("pattern", "")), 0, "search")] = "rank_signs.yaml"
    for name in ("advice", "told", "failed", "pair", "condition", "not_advised", "shows"):
        found[Expression("".join(tables.read_list("relayed.yaml", name)), 0, "search")] = f"relayed.yaml {name}"
    return found


def of_messages() -> list[Linear | Pattern]:
    """Every expression of the signatures, the vocabulary and the finders, as it is searched for."""
    assert registry.FINDERS
    groups = [group for row in signature_rows.OwnRows() for group in (row.any, *row.all, *row.about, row.unless)]
    groups += [signature_rows.vocabulary(name) for name in signature_rows._own_lists()]
    kept = [as_words(group) for group in groups if group]
    kept += [*sign._known.values(), *(one for _, one in genre._KINDS if isinstance(one, Words))]
    return [_compile(source) for source in sorted({way.source for one in kept for way in one._alternatives})]


def too_fast_growing(expressions: Iterable[Expression]) -> list[str]:
    grown = ((expression, exponent(expression)) for expression in expressions)
    return [f"{power:.1f} {expression.method} {expression.source}" for expression, power in grown if power > MOST]


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        (r"\[((?:'(?:sm|gfx)_?\w+',?)+)\]", r"\[((?:'(?:sm|gfx)\w+',?)+)\]"),
        (r"x\s*\)*\s*(?:is)*\s*y", r"x[\s)]*(?:(?:is)+\s*)?y"),
        (r"[\w./]*csrc\S{0,80} fails", r"(?<![\w./])[\w./]*csrc\S{0,80} fails"),
        (r"\d+ steps", r"(?<!\d)\d+ steps"),
        (r"from.*to.*here", r"from.{0,40}to.{0,40}here"),
    ],
)
def test_the_work_of_a_bad_expression_is_seen_to_grow(bad, good):
    assert too_fast_growing([Expression(bad, 0, "search")])
    assert not too_fast_growing([Expression(good, 0, "search")])


@pytest.mark.parametrize(
    ("source", "grows"),
    [
        (r"^out of (?:host |GPU )?memory \d{1,9}\b", False),
        (r"from.{0,40}to.{0,40}here", False),
        (r"(?<!\w)(?:a|b{2,5})(?=c)", False),
        (r"\d+ steps", True),
        (r"(?:a|b*)c", True),
        (r"(?<!a)(?=.{0,400}b)", True),
        (r"(?:a{0,9}){0,9}b", True),
    ],
)
def test_only_what_may_repeat_without_a_bound_is_measured(source, grows):
    assert may_grow(source, 0) == grows


def test_the_work_of_no_expression_in_the_code_grows_faster_than_the_text():
    expressions = in_code()
    assert len(expressions) > 330
    assert {one.method for one in expressions} == {"search", "match", "fullmatch"}
    assert not too_fast_growing(expressions)


def test_the_work_of_no_expression_in_a_table_grows_faster_than_the_text():
    assert not too_fast_growing(in_tables())


def test_messages_are_searched_for_in_linear_time_or_grow_no_faster_than_the_text():
    expressions = of_messages()
    listed = [one for one in expressions if isinstance(one, Pattern)]
    # what no other engine than Python's can say; a letter beyond ASCII is not its reason
    assert len([one for one in listed if one.source.isascii()]) < 60
    assert len(listed) < len(expressions) / 15, len(expressions)
    assert not too_fast_growing(Expression(one.source, DOTALL | MULTILINE, "search") for one in listed)


def test_nothing_else_compiles_an_expression():
    files = [path for path in ROOT.rglob("*.py") if not path.relative_to(ROOT).as_posix().startswith(ELSEWHERE)]
    importing = [
        path.relative_to(ROOT).as_posix()
        for path in files
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if (isinstance(node, ast.Import) and any(one.name == "re" for one in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == "re")
    ]
    assert set(importing) == {"patterns.py"}
