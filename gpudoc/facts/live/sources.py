"""The lines of the user's code that the samples point to: the stack alone does not show what they call."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterable

from gpudoc.facts.process import Frame

MAX_BYTES = 2_000_000


def is_library(file: str) -> bool:
    """Whether a file belongs to Python itself or to an installed package, and not to the user."""
    if not file or file.startswith("<") or not file.endswith((".py", ".ipynb")):
        return True
    marks = ("/site-packages/", "/dist-packages/", "/lib/python3", "/torchinductor_", "/bin/")
    return any(mark in file for mark in marks)


def read_lines(
    pid: int, frames: Iterable[Frame], root: str = "/proc"
) -> tuple[dict[tuple[str, int], str], dict[tuple[str, int], str]]:
    """The text of each frame's line, and the lines of the user's same files that keep a loss with its graph."""
    wanted: dict[str, set[int]] = {}
    for frame in frames:
        if frame.file.endswith(".py"):
            wanted.setdefault(frame.file, set()).add(frame.line)
    owner = _owner(f"{root}/{pid}")
    lines: dict[tuple[str, int], str] = {}
    kept: dict[tuple[str, int], str] = {}
    for file, numbers in wanted.items():
        # through the job's own root, because a path in a container is a different file here
        text = _read_source(f"{root}/{pid}/root{file}", owner) or _read_source(file, owner)
        if not text:
            continue
        rows = text.splitlines()
        lines.update({(file, n): whole_statement(rows, n) for n in numbers if 0 < n <= len(rows)})
        if not is_library(file):
            kept.update({(file, n): rows[n - 1].strip() for n in kept_graphs(text)})
    return lines, kept


def _owner(place: str) -> int:
    try:
        return os.stat(place).st_uid  # noqa: PTH116 - beside the other calls of os
    except OSError:
        return -1


def _read_source(place: str, owner: int) -> str:
    """The text of a file that the watched process names, if the owner of the process may read it; "" for anything else.

    The watcher may be root: a name that leads to a pipe would block it, and one that leads to a secret would reveal it.
    """
    try:
        handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return ""
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        may_read = status.st_uid == owner or bool(status.st_mode & stat.S_IROTH)
        if not stat.S_ISREG(status.st_mode) or not may_read or status.st_size > MAX_BYTES:
            return ""
        return file.read(MAX_BYTES).decode("utf-8", "replace")


def whole_statement(rows: list[str], number: int) -> str:
    """The line joined with the lines after it that belong to the same brackets."""
    text = rows[number - 1].strip()
    for row in rows[number : number + 5]:
        if text.count("(") <= text.count(")"):
            break
        text += " " + row.strip()
    return text[:300]


def kept_graphs(text: str) -> list[int]:
    """Lines where a tensor that `.backward()` was called on, or a model's output, is summed or listed without detach.

    Only names on which the same function calls `.backward()` count, so that a plain number is never blamed.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    found: set[int] = set()
    for scope in ast.walk(tree):
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            names = _differentiated(scope)
            found.update(getattr(node, "lineno", 0) for node in ast.walk(scope) if _keeps(node, names))
    return sorted(found)


def _differentiated(scope: ast.AST) -> set[str]:
    """Names with `.backward()` called on them, or given to `accelerator.backward(loss)`."""
    names: set[str] = set()
    for node in ast.walk(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            names.update(inner.id for inner in ast.walk(node.func.value) if isinstance(inner, ast.Name))
            names.update(argument.id for argument in node.args if isinstance(argument, ast.Name))
    return names - {"self", "torch", "accelerator", "scaler", "fabric"}


def _keeps(node: ast.AST, names: set[str]) -> bool:
    match node:
        case ast.AugAssign(target=ast.Name() | ast.Attribute(), op=ast.Add(), value=ast.Name(id=name)):
            return name in names and not (isinstance(node.target, ast.Name) and node.target.id in names)
        case ast.Call(func=ast.Attribute(attr="append"), args=[ast.Name(id=name)]):
            return name in names
        case _:
            return False
