"""Whether the file that a data set reads may be written while samples are made."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.rewrites.vocabulary import WRITERS
from gpudoc.fix.source import Node, Source
from gpudoc.fix.tree import argument, called, calls, function_of, loops_around, qualified

_READING_MODES = ("r", "rb", "rt")
# only these calls, or a write, give a file another content; removing it does not
_MOVES = frozenset(
    {f"os.{name}" for name in ("replace", "rename", "truncate", "link", "symlink")}
    | {f"shutil.{name}" for name in ("copy", "copy2", "copyfile", "copytree", "move")}
)


def written_later(source: Source, owner: str, *, by_torch: bool) -> str:
    """The line that may write a file after an object of class `owner` was made; '' if all writes certainly ran before.

    `owner` is '' if no object is made; `by_torch`: the file that is read may come from `torch.save`.
    """
    for call in calls(source.module):
        if _writes(source, call, by_torch=by_torch) and not (owner and _runs_before(source, call, owner)):
            return f"line {source.line(call)} writes a file, which may be this one"
    return ""


def reads_only(source: Source, mode: cst.Arg) -> bool:
    """Whether a mode of `open` only allows reading."""
    return source.code(mode.value).strip("'\"") in _READING_MODES


def _writes(source: Source, call: cst.Call, *, by_torch: bool) -> bool:
    name, full = called(call), qualified(source, call.func)
    if name == "open":
        # `open(path, mode)`, and `path.open(mode)`
        first = 1 if isinstance(call.func, cst.Name) or full else 0
        mode = argument(call, "mode", first)
        return mode is not None and not reads_only(source, mode)
    if name == "save":
        return full.startswith("numpy.") or (by_torch and full == "torch.save")
    return name in WRITERS or full in _MOVES


def _runs_before(source: Source, write: Node, owner: str) -> bool:
    """Whether a call runs once, and before each place where an object of the class is made."""
    made = [call for call in calls(source.module) if called(call) == owner]
    named = [one for one in source.nodes if isinstance(one, cst.Name) and one.value == owner]
    # the class definition is one more; if a name is used without a call, it may be called anywhere
    if not made or len(named) != len(made) + 1:
        return False
    first = _way_up(source, write)
    return bool(first) and all(_is_before(source, first, _way_up(source, one, loops=True)) for one in made)


def _is_before(source: Source, one: list[Node], other: list[Node]) -> bool:
    """Whether the paths to two calls meet in one function, and the path to the first call comes first there."""
    for a in one:
        for b in other:
            if function_of(source, a) is function_of(source, b):
                return source.span(_statement(source, a))[1] <= source.span(_statement(source, b))[0]
    return False


def _statement(source: Source, node: Node) -> Node:
    return next((above for above in source.ancestors(node) if isinstance(above, cst.SimpleStatementLine)), node)


def _way_up(source: Source, node: Node, *, loops: bool = False) -> list[Node]:
    """A call, the only call of the function that holds it, and so on up to the module; [] if that is not clear."""
    way = [node]
    while (function := function_of(source, way[-1])) is not None:
        if not loops and loops_around(source, way[-1]):
            return []
        if source.parent(function) is not source.module or function.decorators or function.asynchronous is not None:
            return []
        name = function.name.value
        named = [one for one in source.nodes if isinstance(one, cst.Name) and one.value == name]
        callers = [call for call in calls(source.module) if isinstance(call.func, cst.Name) and called(call) == name]
        if len(named) != 2 or len(callers) != 1 or callers[0] in way:
            return []
        way.append(callers[0])
    return [] if not loops and loops_around(source, way[-1]) else way
