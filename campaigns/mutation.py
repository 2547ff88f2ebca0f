"""Do the tests notice when a function does nothing? Functions drawn by seed lose their body, one at a time.

    python campaigns/mutation.py [--count 60] [--seed 0] [--minutes 60] [--record]

What is taken out is the whole body ("extreme mutation"): the function returns the emptiest value of its declared type.
The fast tests of the file's own mirrored test file run first; where they still pass, its slow ones do, then the fast
tests of its folder, each for so many seconds at most. A function whose loss no test notices has survived. Only
functions of more than one statement, the docstring not counted, are drawn.

At the end the tests that failed run once more on the code as it is: one that fails there too has noticed nothing.

It works in a git worktree in a temporary folder, at the commit that is checked out, or another one with --commit;
changes that are not committed are not part of it. What was found is kept in the state file, so that the next call with
the same commit and seed goes on.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NoReturn

import pytest
import torch  # noqa: F401 - loaded once for all forks

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
LONGEST_S = 400
# pytest's exit status: all passed, some failed, no test was there; and of a run that never ended
PASSED, FAILED, NOTHING, ENDLESS = 0, 1, 5, 124
# without the case of a test that has several
_FAILED = re.compile(r"(?m)^(?:FAILED|ERROR) (\S+\.py(?:::[\w:]+)?)")


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
    """What became of one function without its body.

    `by` is the file or folder of tests that noticed, `test` the first test that failed, or the file that could not be
    read; '' where they never ended.
    """

    target: Target
    outcome: str
    by: str
    seconds: float
    test: str = ""


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


def run_tests(copy: pathlib.Path, *words: str) -> tuple[int, list[str]]:
    """The exit status of pytest in the copy, and the tests that failed; ENDLESS when it takes too long.

    In a fork of this process, which has torch and pytest loaded and nothing of gpudoc.
    """
    with tempfile.TemporaryFile() as told:
        pid = os.fork()
        if pid == 0:
            _be_pytest(copy, told.fileno(), words)
        status = _wait(pid)
        told.seek(0)
        return status, _FAILED.findall(told.read().decode("utf-8", "replace"))


def _be_pytest(copy: pathlib.Path, told: int, words: Sequence[str]) -> NoReturn:
    status = 70
    try:
        os.setsid()
        os.chdir(copy)
        os.dup2(told, 1)
        os.dup2(told, 2)
        os.environ |= {"PYTHONPATH": str(copy), "COLUMNS": "500"}
        sys.path[0] = str(copy)
        status = pytest.main(["-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", *words])
    finally:
        sys.stdout.flush()
        os._exit(status)


def _wait(pid: int) -> int:
    until = time.monotonic() + LONGEST_S
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return ENDLESS


def judge(copy: pathlib.Path, target: Target) -> Found:
    """Empty the function in the copy, run the tests, and put the file back."""
    began = time.monotonic()
    path = copy / target.path
    source = path.read_text("utf-8")

    def found(outcome: str, by: str, test: str = "") -> Found:
        seconds = round(time.monotonic() - began, 1)
        return Found(target=target, outcome=outcome, by=by, seconds=seconds, test=test)

    fast, slow = f"not slow and {DESELECTED}", f"slow and {DESELECTED}"
    path.write_text(emptied(source, target.name), "utf-8")
    try:
        for place, marks in ((target.own_tests, fast), (target.own_tests, slow), (target.room, fast)):
            if not (copy / place).exists():
                continue
            status, failed = run_tests(copy, "-x", "-m", marks, place)
            if status == ENDLESS:
                path.write_text(source, "utf-8")
                ends = run_tests(copy, "-m", marks, place)[0] != ENDLESS
                return found("killed" if ends else "unknown", place)
            if status in (PASSED, NOTHING):
                continue
            # one that fails only now and then has noticed nothing
            if not failed or run_tests(copy, "-m", marks, failed[0])[0] != PASSED:
                return found("killed", place, failed[0] if failed else place)
    finally:
        path.write_text(source, "utf-8")
    return found("survived", "")


def confirm(copy: pathlib.Path, found: list[Found]) -> list[Found]:
    """The same, where a test that fails without any change as well has noticed nothing."""
    tests = sorted({row.test for row in found if "::" in row.test})
    unread = sorted({row.test for row in found if row.test and "::" not in row.test})
    failed: set[str] = set()
    for words, places in (((), tests), (("--collect-only",), unread)):
        status, several = run_tests(copy, "-m", DESELECTED, *words, *places) if places else (PASSED, [])
        failed.update(several)
        if status not in (PASSED, NOTHING, FAILED):
            failed.update(one for one in places if run_tests(copy, "-m", DESELECTED, *words, one)[0] != PASSED)
    return [replace(row, outcome="unknown") if row.test in failed else row for row in found]


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
        f"`python campaigns/mutation.py --count {count} --seed {seed}` at commit {commit[:12]}; {drawn}",
        "",
        noticed + unknown,
        "",
        "| function | outcome | noticed by | s |",
        "|---|---|---|---|",
    ]
    for row in sorted(found, key=lambda row: (row.outcome != "survived", row.target.path)):
        name = f"`{row.target.path}:{row.target.line}` `{row.target.name}`"
        lines.append(f"| {name} | {row.outcome} | {row.test or row.by} | {row.seconds} |")
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
    parser.add_argument("--commit", default="HEAD", help="what is tried: HEAD, or that of a run that was cut off")
    parser.add_argument("--record", action="store_true", help="write records/DATE-mutation.md")
    chosen = parser.parse_args()
    until = time.monotonic() + 60 * chosen.minutes
    git = lambda *words: subprocess.check_output(["git", "-C", str(ROOT), *words], text=True).strip()  # noqa: E731
    commit = git("rev-parse", chosen.commit)
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
            found = confirm(copy, [row for row in found if row.target in set(drawn)])
        finally:
            git("worktree", "remove", "--force", str(copy))
    text = report(commit, chosen.seed, found, chosen.count, len(every))
    print(text)
    if chosen.record:
        (ROOT / "records" / f"{datetime.date.today()}-mutation.md").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
