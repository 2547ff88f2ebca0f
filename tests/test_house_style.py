"""The budgets of size, docstrings and speech, read from the tree with `ast`; exceptions are listed with a reason."""

from __future__ import annotations

import ast
import functools
import pathlib
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "gpudoc").rglob("*.py"))
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 80
MAX_COMMAND_LINES = 40
MAX_PARAMETERS = 6

# name -> reason; a command's parameters are its options, which the contract fixes
LONGER_THAN_ALLOWED: dict[str, str] = {}
MORE_PARAMETERS: dict[str, str] = {}


class Function(NamedTuple):
    name: str
    lines: int
    body_lines: int
    parameters: list[str]


@functools.cache
def functions(path: pathlib.Path) -> list[Function]:
    # as the oldest Python that gpudoc runs on reads it
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 10))
    return [
        Function(
            name=node.name,
            lines=node.end_lineno - node.lineno,
            body_lines=node.end_lineno - node.body[0].lineno,
            parameters=[a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)],
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def name_of(path: pathlib.Path, function: Function) -> str:
    return f"{path.relative_to(ROOT)}:{function.name}"


def test_no_file_is_longer_than_its_budget():
    long = {
        str(p.relative_to(ROOT)): n for p in SOURCES if (n := len(p.read_text("utf-8").splitlines())) > MAX_FILE_LINES
    }
    assert not long


def test_no_function_is_longer_than_its_budget():
    lengths = {name_of(p, f): f.lines for p in SOURCES for f in functions(p)}
    assert not {n: v for n, v in lengths.items() if v > MAX_FUNCTION_LINES and n not in LONGER_THAN_ALLOWED}
    assert sorted(lengths.values())[int(len(lengths) * 0.95)] <= 45


def test_functions_take_few_parameters():
    def count(function: Function) -> int:
        return len([name for name in function.parameters if name not in ("self", "cls")])

    many = {
        name_of(p, f): count(f)
        for p in SOURCES
        if p.parent.name != "cli"
        for f in functions(p)
        if count(f) > MAX_PARAMETERS
    }
    assert set(many) <= set(MORE_PARAMETERS), many


def test_commands_are_options_one_call_one_render():
    commands = [(p, f) for p in (ROOT / "gpudoc" / "cli").glob("*.py") for f in functions(p) if f.name == p.stem]
    assert commands
    for path, command in commands:
        lines = command.body_lines
        assert lines <= MAX_COMMAND_LINES, f"{path.name}: the command decides too much ({lines} lines)"


def test_no_unfinished_marks():
    marks = ("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")
    found = [f"{p.name}: {m}" for p in SOURCES for m in marks if m in p.read_text("utf-8")]
    assert not found


def test_every_source_file_parses_on_the_oldest_python():
    assert sum(len(functions(path)) for path in SOURCES) > 3000


def test_what_becomes_a_number_is_asked_for_by_isdecimal():
    # '²'.isdigit() is true, and int('²') fails
    assert not [str(path.relative_to(ROOT)) for path in SOURCES if ".isdigit()" in path.read_text(encoding="utf-8")]
