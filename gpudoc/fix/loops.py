"""Loops of the script that make many short passes in a step, and for which fix has no change."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from gpudoc.fix.model import RunEvidence
from gpudoc.frozen import dataclass
from gpudoc.reading import UnreadableError, read_bytes

# the least share of a step that is worth rewriting by hand
_SHARE = 0.2
# with fewer or longer passes, the computation matters and not the loop; a small operation of torch takes about
# 0.01 ms to start on any device
_PASSES, _PASS_S = 50, 0.25e-3
# an inner loop is reported instead of the outer one if it takes this share of the outer one's time
_MOST_OF_IT = 0.7

_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_Loop = ast.For | ast.AsyncFor | ast.While | _Comprehension


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortPasses:
    """A loop (`line` to `last_line`): its `passes` in a step take `share` of it, 0 to 1, and `pass_s` seconds each."""

    file: Path
    line: int
    last_line: int
    share: float
    passes: float
    pass_s: float


def find_short_passes(evidence: RunEvidence, step_s: float, files: tuple[Path, ...]) -> tuple[ShortPasses, ...]:
    """Loops in these files whose short passes take a good part of a step of `step_s` seconds, the largest first."""
    found: list[ShortPasses] = []
    for file in files:
        passes = {line: count for name, line, count in evidence.passes if name == file}
        if not passes:
            continue
        try:
            tree = ast.parse(read_bytes(file, "Python"))
        except (UnreadableError, SyntaxError, ValueError):
            continue
        shares = {one.line: one.share for one in evidence.hot if one.file == file}
        found += _in_tree(tree, file, shares, passes, step_s)
    return tuple(sorted(found, key=lambda one: -one.share))


def _in_tree(
    tree: ast.Module, file: Path, shares: dict[int, float], passes: dict[int, float], step_s: float
) -> Iterator[ShortPasses]:
    for loop in ast.walk(tree):
        if not isinstance(loop, _Loop):
            continue
        share = _share(loop, shares)
        count = passes.get(_first_line(loop), 0.0)
        if share < _SHARE or count < _PASSES or share * step_s / count > _PASS_S:
            continue
        inner = [one for one in ast.walk(loop) if one is not loop and isinstance(one, _Loop)]
        if any(_share(one, shares) >= _MOST_OF_IT * share for one in inner):
            continue
        yield ShortPasses(
            file=file, line=loop.lineno, last_line=loop.end_lineno or loop.lineno, share=min(1.0, share),
            passes=count, pass_s=share * step_s / count,
        )  # fmt: skip


def _first_line(loop: _Loop) -> int:
    """A line that each pass runs once."""
    if isinstance(loop, _Comprehension):
        return loop.lineno
    return loop.body[0].lineno


def _share(loop: _Loop, shares: dict[int, float]) -> float:
    """The share of a step that the lines of a loop take, with all they call; only lines of one function count."""
    if isinstance(loop, _Comprehension):
        lines = set(range(loop.lineno, (loop.end_lineno or loop.lineno) + 1))
    else:
        lines = {line for statement in loop.body for line in _own_lines(statement)}
    return sum(shares.get(line, 0.0) for line in lines)


def _own_lines(statement: ast.stmt) -> Iterator[int]:
    """The lines of a statement, without those inside a function that it defines, which is called elsewhere."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    blocks = [
        block
        for name in ("body", "orelse", "finalbody")
        for block in getattr(statement, name, [])
        if isinstance(block, ast.stmt)
    ]
    parts = (*getattr(statement, "handlers", []), *getattr(statement, "cases", []))
    blocks += [one for part in parts for one in part.body]
    first = min((one.lineno for one in blocks), default=(statement.end_lineno or statement.lineno) + 1)
    yield from range(statement.lineno, first)
    for one in blocks:
        yield from _own_lines(one)
