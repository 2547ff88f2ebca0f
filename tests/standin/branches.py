"""Which ways were taken wherever gpudoc decides by the type of the device, in any process of a run.

    python -m tests.standin.branches TAKEN [OUT]

A decision is the condition of an `if`, a `while`, a conditional expression or a comprehension that mentions CUDA or the
device's type; its two ways are that it held and that it did not. `watch` has every process write the ways that it takes
into TAKEN, one line each; several runs may write into the same file. What was taken in a source file that changed since
does not count. OUT gets the ways that were not taken.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib.abc
import importlib.machinery
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "gpudoc"
BY_DEVICE = re.compile(
    r"""['"](?:cuda|cpu|nccl)\b|\b(?:is_cuda|on_cuda|on_gpu|is_gpu|has_gpu|device_type|pynvml)\b|device\.type|\.cuda\."""
)
# these read what a text or another machine says, which recorded ones show in their own tests
NOT_BY_DEVICE = ("facts/", "knowledge/", "doctor/causes/", "doctor/symptoms.py")
PATH = (
    "import os; p = os.environ.get('STANDIN_WATCH'); p and exec(open(p).read(), {'__file__': p, '__name__': 'watch'})\n"
)


class Decision(NamedTuple):
    """One condition: the line and the column where it begins, and its words."""

    line: int
    column: int
    condition: str


def _conditions(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Each condition by device, with what it belongs to."""
    for node in ast.walk(tree):
        tests = node.ifs if isinstance(node, ast.comprehension) else [getattr(node, "test", None)]
        if isinstance(node, ast.comprehension | ast.If | ast.While | ast.IfExp):
            yield from ((node, test) for test in tests if test and BY_DEVICE.search(ast.unparse(test)))


def decisions(source: str) -> list[Decision]:
    """The decisions by device of a source file, in order."""
    found = _conditions(ast.parse(source))
    return sorted(Decision(test.lineno, test.col_offset, ast.unparse(test)) for _, test in found)


def name_of(file: Path, source: str) -> str:
    """The file as lines of TAKEN name it: with a digest, since lines move."""
    return f"{file.relative_to(ROOT)}@{hashlib.sha256(source.encode()).hexdigest()[:12]}"


def instrument(source: str, name: str) -> ast.Module:
    """The source with each decision telling its way to `__took__`."""
    tree = ast.parse(source)
    for node, test in list(_conditions(tree)):
        where = ast.Constant(f"{name}:{test.lineno}:{test.col_offset}")
        call = ast.copy_location(ast.Call(ast.Name("__took__", ast.Load()), [test, where], []), test)
        if isinstance(node, ast.comprehension):
            node.ifs[node.ifs.index(test)] = call
        else:
            node.test = call  # type: ignore[attr-defined]
    return ast.fix_missing_locations(tree)


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        path = self.get_filename(fullname)
        source = self.get_data(path).decode()
        return compile(instrument(source, name_of(Path(path).resolve(), source)), path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "gpudoc":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)  # type: ignore[arg-type]
        if spec is None or not spec.origin or not Path(spec.origin).resolve().is_relative_to(PACKAGE):
            return None
        spec.loader = _Loader(name, spec.origin)
        return spec


def watch(taken: str) -> None:
    """From now on this process, and what it forks, writes the ways that it takes for the first time into `taken`."""
    told = set()

    def took(value: object, where: str) -> bool:
        way = f"{where} {bool(value)}\n"
        if way not in told:
            told.add(way)
            file = os.open(taken, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.write(file, way.encode())
            os.close(file)
        return bool(value)

    builtins.__took__ = took  # type: ignore[attr-defined]
    sys.meta_path.insert(0, _Finder())


def report(taken: set[str], package: Path = PACKAGE) -> Iterator[str]:
    """The figure, then each way that was not taken."""
    ways, missing = 0, []
    for file in sorted(package.rglob("*.py")):
        if str(file.relative_to(package)).startswith(NOT_BY_DEVICE):
            continue
        source = file.read_text("utf-8")
        name = name_of(file, source)
        for line, column, condition in decisions(source):
            for way in (True, False):
                ways += 1
                if f"{name}:{line}:{column} {way}" not in taken:
                    missing.append(f"{file.relative_to(ROOT)}:{line}: never {way}: {condition}")
    done = ways - len(missing)
    yield f"{done} of {ways} ways taken where gpudoc decides by the type of the device ({100 * done / ways:.1f} %)"
    yield from missing


def main() -> None:
    lines = list(report(set(Path(sys.argv[1]).read_text().splitlines())))
    print(lines[0], flush=True)
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
if __name__ == "watch":  # read by each process of a run as it starts, see PATH
    watch(os.environ["STANDIN_BRANCHES"])
