"""Do the tests notice when a function does nothing? Functions drawn by seed lose their body, one at a time.

    python benchmarks/mutation.py [--count 60] [--seed 0] [--minutes 60] [--record]

What is taken out is the whole body ("extreme mutation"): the function returns the emptiest value of its declared type.
The file's own mirrored test file runs first; where it still passes, the fast tests of its folder do. A function whose
loss no test notices has survived. Only functions of more than one statement, the docstring not counted, are drawn.

It works in a git worktree in a temporary folder, at the commit that is checked out; changes that are not committed are
not part of it. What was found is kept in the state file, so that the next call with the same commit and seed goes on.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

ROOT = pathlib.Path(__file__).resolve().parents[1]
DESELECTED = "not gpu and not standin"
# by the outermost name of the declared type; None for any other, which a caller can hardly use
EMPTIEST = {
    "bool": "False",
    "int": "0",
    "float": "0.0",
    "str": "''",
    "bytes": "b''",
    "list": "[]",
    "Sequence": "()",
    "tuple": "()",
    "dict": "{}",
    "Mapping": "{}",
    "set": "set()",
    "frozenset": "frozenset()",
}
LONGEST_S = 1200
# what pytest says: all passed, some failed, and what else ends it; nothing collected is no test at all
PASSED, NOTHING = 0, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One function: its file below the root, its dotted name and its first line."""

    path: str
    name: str
    line: int

    @property
    def own_tests(self) -> str:
        """The mirrored test file."""
        path = pathlib.Path(self.path)
        return str(pathlib.Path("tests", *path.parts[1:-1], f"test_{path.name}"))

    @property
    def room(self) -> str:
        """The folder of tests of the file's room."""
        return str(pathlib.Path(self.own_tests).parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What became of one function without its body."""

    target: Target
    outcome: str
    by: str
    seconds: float


def functions_of(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """(dotted name, node) of every function and method, those inside functions left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions_of(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield f"{prefix}{node.name}", node


def statements(node: ast.FunctionDef) -> list[ast.stmt]:
    """The body without its docstring."""
    return node.body[1:] if ast.get_docstring(node) is not None else node.body


def targets(root: pathlib.Path) -> list[Target]:
    """All functions of gpudoc with more than one statement."""
    return [
        Target(path=str(path.relative_to(root)), name=name, line=node.lineno)
        for path in sorted((root / "gpudoc").rglob("*.py"))
        for name, node in functions_of(ast.parse(path.read_text("utf-8")))
        if len(statements(node)) > 1
    ]


def emptied(source: str, name: str) -> str:
    """The source with that function's body replaced by the emptiest result of its declared type."""
    node = dict(functions_of(ast.parse(source)))[name]
    body = statements(node)
    own = [inner for statement in body for inner in _walk_own(statement)]
    indent = " " * body[0].col_offset
    if any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in own):
        new = f"{indent}return\n{indent}yield\n"
    else:
        declared = node.returns
        outer = declared.value if isinstance(declared, ast.Subscript) else declared
        new = f"{indent}return {EMPTIEST.get(outer.id, 'None') if isinstance(outer, ast.Name) else 'None'}\n"
    lines = source.splitlines(keepends=True)
    return "".join([*lines[: body[0].lineno - 1], new, *lines[node.end_lineno :]])


def _walk_own(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that belong to this function and not to one inside it."""
    yield node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        for child in ast.iter_child_nodes(node):
            yield from _walk_own(child)


def pytest_status(copy: pathlib.Path, place: str, marks: str) -> int:
    """The exit status of pytest on one file or folder of the copy; 124 when it never ends."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", marks, place]
    process = subprocess.Popen(
        command,
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(LONGEST_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return 124


def judge(copy: pathlib.Path, target: Target) -> Found:
    """Empty the function in the copy, run the tests, and put the file back."""
    began = time.monotonic()
    path = copy / target.path
    source = path.read_text("utf-8")

    def found(outcome: str, by: str) -> Found:
        return Found(target=target, outcome=outcome, by=by, seconds=round(time.monotonic() - began, 1))

    if not (copy / target.own_tests).exists():
        return found("survived", "no test file of its own")
    for place, marks in ((target.own_tests, DESELECTED), (target.room, f"not slow and {DESELECTED}")):
        try:
            path.write_text(emptied(source, target.name), "utf-8")
            status = pytest_status(copy, place, marks)
        finally:
            path.write_text(source, "utf-8")
        if status in (PASSED, NOTHING):
            continue
        # a test that fails without the change as well has noticed nothing
        sound = pytest_status(copy, place, marks) in (PASSED, NOTHING)
        return found("killed" if sound else "unknown", place)
    return found("survived", "")


def report(commit: str, seed: int, found: list[Found], count: int, num_functions: int) -> str:
    """The record: how many survived, and each function."""
    killed = sum(row.outcome == "killed" for row in found)
    by_own = sum(row.outcome == "killed" and row.by == row.target.own_tests for row in found)
    survived = sum(row.outcome == "survived" for row in found)
    drawn = f"{num_functions} functions of more than one statement, {len(found)} of the {count} drawn were tried."
    noticed = f"The tests noticed {killed} ({by_own} by the file's own test file), {survived} survived, "
    unknown = f"{len(found) - killed - survived} unknown (the tests fail without the change too)."
    lines = [
        f"# Functions without their body, {datetime.date.today()}",
        "",
        f"`python benchmarks/mutation.py --count {count} --seed {seed}` at commit {commit[:12]}; {drawn}",
        "",
        noticed + unknown,
        "",
        "| function | outcome | noticed by | s |",
        "|---|---|---|---|",
    ]
    for row in sorted(found, key=lambda row: (row.outcome != "survived", row.target.path)):
        name = f"`{row.target.path}:{row.target.line}` `{row.target.name}`"
        lines.append(f"| {name} | {row.outcome} | {row.by} | {row.seconds} |")
    return "\n".join(lines) + "\n"


def load(path: pathlib.Path) -> list[Found]:
    """What an earlier call with the same commit and seed found."""
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [Found(**{**row, "target": Target(**row["target"])}) for row in rows]


def main() -> None:
    """Draw, try, and say what survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no further function after so long")
    parser.add_argument("--only", default="", metavar="FOLDER", help="of those drawn, try only files below this folder")
    parser.add_argument("--record", action="store_true", help="write benchmarks/records/DATE-mutation.md")
    chosen = parser.parse_args()
    until = time.monotonic() + 60 * chosen.minutes
    git = lambda *words: subprocess.check_output(["git", "-C", str(ROOT), *words], text=True).strip()  # noqa: E731
    commit = git("rev-parse", "HEAD")
    state = pathlib.Path(tempfile.gettempdir()) / f"gpudoc-mutation-{commit[:12]}-{chosen.seed}.jsonl"
    found = load(state)
    with tempfile.TemporaryDirectory(prefix="gpudoc-mutation-") as folder:
        copy = pathlib.Path(folder) / "copy"
        git("worktree", "add", "--quiet", "--detach", str(copy), commit)
        try:
            every = targets(copy)
            drawn = random.Random(chosen.seed).sample(every, min(chosen.count, len(every)))
            known = {row.target for row in found}
            for target in drawn:
                if time.monotonic() > until:
                    break
                if target in known or not target.path.startswith(chosen.only):
                    continue
                row = judge(copy, target)
                found.append(row)
                with state.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(asdict(row)) + "\n")
                print(
                    f"{len(found):3d} {row.outcome:8s} {target.path}:{target.line} {target.name} {row.by}", flush=True
                )
        finally:
            git("worktree", "remove", "--force", str(copy))
    rows = [row for row in found if row.target in set(drawn)]
    text = report(commit, chosen.seed, rows, chosen.count, len(every))
    print(text)
    if chosen.record:
        (ROOT / "benchmarks" / "records" / f"{datetime.date.today()}-mutation.md").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
