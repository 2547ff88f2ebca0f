"""The budgets of size, docstrings and speech, read from the tree with `ast`; exceptions are listed with a reason."""

from __future__ import annotations

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "gpudoc").rglob("*.py"))
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 80
MAX_COMMAND_LINES = 40
MAX_PARAMETERS = 6

# name -> reason; a command's parameters are its options, which the contract fixes
LONGER_THAN_ALLOWED: dict[str, str] = {}
MORE_PARAMETERS: dict[str, str] = {}


def functions(path: pathlib.Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def name_of(path: pathlib.Path, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return f"{path.relative_to(ROOT)}:{node.name}"


def test_no_file_is_longer_than_its_budget():
    long = {
        str(p.relative_to(ROOT)): n for p in SOURCES if (n := len(p.read_text("utf-8").splitlines())) > MAX_FILE_LINES
    }
    assert not long


def test_no_function_is_longer_than_its_budget():
    lengths = {name_of(p, f): f.end_lineno - f.lineno for p in SOURCES for f in functions(p)}
    assert not {n: v for n, v in lengths.items() if v > MAX_FUNCTION_LINES and n not in LONGER_THAN_ALLOWED}
    assert sorted(lengths.values())[int(len(lengths) * 0.95)] <= 45


def test_functions_take_few_parameters():
    def count(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        return len([n for n in names if n not in ("self", "cls")])

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
        body = command.end_lineno - command.body[0].lineno
        assert body <= MAX_COMMAND_LINES, f"{path.name}: the command decides too much ({body} lines)"


def test_no_unfinished_marks():
    marks = ("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")
    found = [f"{p.name}: {m}" for p in SOURCES for m in marks if m in p.read_text("utf-8")]
    assert not found


@pytest.mark.parametrize("source", [p for p in SOURCES if p.stem not in ("__init__", "__main__")], ids=lambda p: p.stem)
def test_every_source_file_has_its_test_file(source):
    mirror = ROOT / "tests" / source.relative_to(ROOT / "gpudoc").parent / f"test_{source.stem}.py"
    assert mirror.exists(), f"{mirror.relative_to(ROOT)} is missing"


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_source_file_parses_on_the_oldest_python(source):
    ast.parse(source.read_text(encoding="utf-8"), feature_version=(3, 10))
