"""Which ways were taken wherever gpudoc decides by the type of the device: read from a run under coverage.

    python -m tests.standin.branches COVERAGE_DATA [OUT]

A branch is an `if` or `while` whose condition mentions CUDA or the device's type; its two ways are into the body and
past it. Conditional expressions cannot be told apart by lines: they are counted, not judged. OUT lists the rest.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import coverage

ROOT = Path(__file__).parents[2]
BY_DEVICE = re.compile(r"""['"]cuda|\bis_cuda\b|\bon_cuda\b|\bhas_gpu\b|device\.type|\.cuda\.|\bpynvml\b""")


@dataclass(frozen=True)
class Branch:
    """One decision: the lines of its condition, and the first line of its body."""

    file: Path
    first: int
    last: int
    body: int
    condition: str

    def ways(self, arcs: set[tuple[int, int]]) -> dict[str, bool]:
        """Whether the body was entered, and whether it was passed by."""
        leaving = {to for start, to in arcs if self.first <= start <= self.last and not self.first <= to <= self.last}
        return {"entered": self.body in leaving, "passed by": bool(leaving - {self.body})}


def decisions(file: Path) -> tuple[list[Branch], int]:
    """The branches of a source file, and how many decisions cannot be told by lines."""
    found, unseen = [], 0
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if not isinstance(node, ast.If | ast.While | ast.IfExp):
            continue
        condition = ast.unparse(node.test)
        if not BY_DEVICE.search(condition):
            continue
        if isinstance(node, ast.IfExp) or node.body[0].lineno == node.lineno:
            unseen += 1
            continue
        last = node.test.end_lineno or node.lineno
        found.append(Branch(file, node.lineno, last, node.body[0].lineno, condition))
    return found, unseen


def report(data: coverage.CoverageData) -> Iterator[str]:
    """The figure, then each way that was not taken."""
    arcs_of = {Path(name).resolve(): set(data.arcs(name) or ()) for name in data.measured_files()}
    ways, missing, unseen = 0, [], 0
    for file in sorted((ROOT / "gpudoc").rglob("*.py")):
        branches, hidden = decisions(file)
        unseen += hidden
        for branch in branches:
            for way, taken in branch.ways(arcs_of.get(file.resolve(), set())).items():
                ways += 1
                if not taken:
                    missing.append(f"{file.relative_to(ROOT)}:{branch.first}: not {way}: {branch.condition}")
    taken = ways - len(missing)
    yield (
        f"{taken} of {ways} ways taken where gpudoc decides by the type of the device ({100 * taken / ways:.1f} %); "
        f"{unseen} conditional expressions not judged"
    )
    yield from missing


def main() -> None:
    import coverage

    data = coverage.CoverageData(sys.argv[1])
    data.read()
    lines = list(report(data))
    print(lines[0], flush=True)
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
