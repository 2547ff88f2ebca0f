"""No circles of files: what imports what in gpudoc, imports inside functions counted, those for types alone not.

An import that closes a circle on purpose says why on its line: `import a.b  # circle: the reason`.
"""

from __future__ import annotations

import ast
import functools
import itertools
import pathlib
import re
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
REASON = re.compile(r"#.*\bcircle: \S+ \S+")
Graph = dict[str, dict[str, str]]


def module_of(path: pathlib.Path, root: pathlib.Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imports(tree: ast.Module, known: set[str], folder: str = "") -> Iterator[tuple[str, int]]:
    """What a file imports of its own package, and on which line.

    Only what runs in a user's script may leave out `folder`, its package, which has another name there.
    """
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting.extend(node.orelse)
            continue
        waiting.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.ImportFrom):
            assert not node.level or folder.endswith("._gpudoc_inside"), "an import says the whole name"
            module = ".".join(filter(None, [folder if node.level else "", node.module]))
            inside = [f"{module}.{alias.name}" for alias in node.names]
            yield from ((name if name in known else module, node.lineno) for name in inside)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)


def graph_of(root: pathlib.Path) -> tuple[Graph, Graph]:
    """Module -> imported module -> file and line: what must have no circle, and what says why it closes one."""
    files = {module_of(path, root): path for path in sorted((root / "gpudoc").rglob("*.py"))}
    graph: Graph = {name: {} for name in files}
    allowed: Graph = {name: {} for name in files}
    for name, path in files.items():
        text = path.read_text(encoding="utf-8")
        folder = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for target, line in imports(ast.parse(text), set(files), folder):
            if target in files and target != name:
                says_why = REASON.search(text.splitlines()[line - 1]) is not None
                (allowed if says_why else graph)[name][target] = f"{path.relative_to(root)}:{line}"
    return graph, allowed


def circle_in(graph: Graph) -> list[str]:
    """The lines of one circle, each importing the next one's file; empty when there is none."""
    done: set[str] = set()
    for start in graph:
        way: list[str] = []
        left = [iter([start])]
        while left:
            name = next(left[-1], None)
            if name is None:
                left.pop()
                if way:
                    done.add(way.pop())
            elif name in way:
                circle = [*way[way.index(name) :], name]
                return [f"{graph[a][b]} imports {b}" for a, b in itertools.pairwise(circle)]
            elif name not in done:
                way.append(name)
                left.append(iter(graph[name]))
    return []


def reaches(graph: Graph, start: str, goal: str) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        new = set(graph[waiting.pop()]) - seen
        seen |= new
        waiting += new
    return goal in seen


@functools.cache
def graph_here() -> tuple[Graph, Graph]:
    return graph_of(ROOT)


def test_no_files_import_each_other_in_a_circle():
    graph, _ = graph_here()
    assert len(graph) > 300
    assert not circle_in(graph)


def test_every_reason_for_a_circle_stands_at_one():
    graph, allowed = graph_here()
    whole = {name: {**graph[name], **allowed[name]} for name in graph}
    told = [(a, b, line) for a, found in allowed.items() for b, line in found.items()]
    assert not [line for a, b, line in told if not reaches(whole, b, a)], "these close no circle any more"


def planted(folder: pathlib.Path, **files: str) -> tuple[Graph, Graph]:
    (folder / "gpudoc").mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / "gpudoc" / f"{name}.py").write_text(text)
    return graph_of(folder)


def test_a_circle_over_three_files_and_an_import_inside_a_function_is_found(tmp_path):
    late = "def f():\n    from gpudoc.a import x\n"
    graph, _ = planted(tmp_path, a="import gpudoc.b\n", b="from gpudoc import c\n", c=late, d="import gpudoc.a\n")
    assert circle_in(graph) == [
        "gpudoc/a.py:1 imports gpudoc.b",
        "gpudoc/b.py:1 imports gpudoc.c",
        "gpudoc/c.py:2 imports gpudoc.a",
    ]


def test_an_import_for_types_alone_and_one_with_a_reason_close_none(tmp_path):
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import gpudoc.b\n"
    told = "import gpudoc.c  # circle: both are needed\n"
    graph, allowed = planted(tmp_path, a=typed, b="import gpudoc.a\n", c="import gpudoc.d\n", d=told)
    assert circle_in(graph) == []
    assert allowed["gpudoc.d"] == {"gpudoc.c": "gpudoc/d.py:1"}


def test_a_circle_without_words_for_it_is_one(tmp_path):
    graph, _ = planted(tmp_path, a="import gpudoc.b  # circle:\n", b="import gpudoc.a\n")
    assert len(circle_in(graph)) == 2
