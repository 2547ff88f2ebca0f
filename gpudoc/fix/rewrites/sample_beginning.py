"""35, for samples with random draws after their beginning: only the reading and decoding is kept."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from gpudoc.fix.model import Candidate
from gpudoc.fix.rewrites.base import RewriteSite, import_edits, insert_line, step_of_indent
from gpudoc.fix.rewrites.vocabulary import CHANGING, PLAIN_CALLS, PURE, PURE_MORE
from gpudoc.fix.rewrites.workers import differs_in_worker, draws_next_to
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import (
    Function,
    below,
    binding,
    bindings,
    called,
    calls,
    dotted,
    local_functions,
    loops_around,
    methods,
    parameters,
    qualified,
    scope_of,
    words,
)

NAME = "_beginning"
# functions of these modules return equal results for equal arguments, unless their name says that they draw
_KNOWN = frozenset({"torch", "numpy", "PIL", "os", "json", "math", "pathlib", "io", "struct", "wave", "csv", "re"})
_OPENS = frozenset({"open"})
_ENDS = (cst.Return, cst.Raise, cst.Yield, cst.Await, cst.Lambda, cst.Global, cst.Nonlocal, cst.NamedExpr, cst.Del)
_CLOCK = frozenset({"time", "datetime", "perf_counter", "environ", "get_worker_info"})
_SIMPLE = (cst.Assign, cst.AnnAssign)


def beginning_of(source: Source, owner: cst.ClassDef, reads: Function) -> list[cst.BaseStatement]:
    """The first statements of `__getitem__` that do the same for an index each time; empty if all of them do."""
    body = [one for one in reads.body.body if isinstance(one, cst.BaseStatement)]
    first = 1 if body and _is_text(body[0]) else 0
    kept: list[cst.BaseStatement] = []
    for statement in body[first:]:
        if not _is_same_each_time(source, owner, reads, statement):
            break
        kept.append(statement)
    # a decorator keeps the whole sample
    return kept if len(kept) < len(body) - first else []


def keep_beginning(site: RewriteSite, reads: Function, kept: Sequence[Node]) -> Candidate | None:
    """The change that moves the beginning to a cached method and copies its values; None if it does not fit."""
    source = site.source
    given = [name for name in _bound_by(kept) if _is_read_behind(reads, kept, name)]
    imports = [import_edits(source, name) for name in ("copy", "functools")]
    if not given or NAME in words(source) or any(one is None for one in imports):
        return None
    index = reads.params.params[1].name.value
    indent, end = source.indent(reads), source.newline(source.line(reads))
    step = source.indent(kept[0])[len(indent) :] or step_of_indent(source)
    first, last = source.line(kept[0]), source.last_line(kept[-1])
    start, stop = source.line_start(first), source.line_start(last) + len(source.line_text(last).rstrip("\r\n"))
    names = ", ".join(given)
    own = [
        f"{indent}@functools.cache",
        f"{indent}def {NAME}(self, {index}):",
        source.text[start:stop],
        f"{indent}{step}return {names}",
        "",
    ]
    call = f"{indent}{step}{names} = copy.deepcopy(self.{NAME}({index}))"
    edits = [insert_line(source, source.line(reads), end.join(own)), Edit(start, stop, call)]
    for one in imports:
        edits += one or []
    return site.change(edits, "The beginning of each sample stays in memory once it was made, and is copied each time.")


def _is_text(statement: Node) -> bool:
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and isinstance(statement.body[0], cst.Expr)
        and isinstance(statement.body[0].value, cst.SimpleString)
    )


def _is_same_each_time(source: Source, owner: cst.ClassDef, reads: Function, statement: cst.BaseStatement) -> bool:
    """Whether a statement only makes values for this sample, in the same way each time."""
    opens = isinstance(statement, cst.With) and statement.asynchronous is None
    lines = list(statement.body.body) if opens and isinstance(statement, cst.With) else [statement]
    inside = list(below(statement))
    # names that are set in an `if` or a loop may be missing later
    if not all(map(_only_sets, lines)) or any(isinstance(one, _ENDS) for one in inside):
        return False
    bound = {name for one in inside for name, part in binding(one) if isinstance(part, cst.Name)}
    whole = all(isinstance(part, cst.Name) for one in inside for _, part in binding(one))
    if not whole or bound & parameters(reads):
        return False
    for part in reached(source, owner, [statement]):
        asked = {one.value for one in below(part) if isinstance(one, cst.Name)}
        if _CLOCK & asked or not all(_is_known(source, owner, call) for call in calls(part)):
            return False
        function = part if isinstance(part, cst.FunctionDef) else reads
        if any(_may_change(source, function, name) for name in asked):
            return False
    return not differs_in_worker(source, statement, depth=0) and not draws_next_to(source, statement)


def _only_sets(line: Node) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and all(isinstance(one, _SIMPLE) for one in line.body)


def _may_change(source: Source, function: Function, name: str) -> bool:
    """Whether a name that a function reads is a module variable that is set again: in a loop, or by a function."""
    if any(isinstance(one, cst.NameItem) and one.name.value == name for one in source.nodes):
        return True
    if name in parameters(function) or bindings(function, name):
        return False
    at_top = [one for one in bindings(source.module, name) if scope_of(source, one) is source.module]
    return len(at_top) > 1 or any(isinstance(one, cst.For) or loops_around(source, one) for one in at_top)


def reached(source: Source, owner: cst.ClassDef, parts: Sequence[Node]) -> list[Node]:
    """Parts of a data set, and all functions of this file that they call, directly or indirectly."""
    found: list[Node] = [*parts]
    # the list grows during this loop
    for part in found:
        for call in calls(part):
            own = methods(owner).get(called(call)) if dotted(call.func).startswith("self.") else None
            inner = [own] if own is not None else local_functions(source, called(call))
            found += [one for one in inner if one not in found]
    return found


def _is_known(source: Source, owner: cst.ClassDef, call: cst.Call) -> bool:
    name, full = called(call), qualified(source, call.func)
    if full:
        return full.partition(".")[0] in _KNOWN and not name.endswith("_")
    if isinstance(call.func, cst.Name):
        return bool(local_functions(source, name)) or name in PLAIN_CALLS or name in _OPENS
    # these statements use the results of their calls, and an image's `resize` returns a copy
    if not isinstance(call.func, cst.Attribute) or name in CHANGING - {"resize"} or name.endswith("_"):
        return False
    on = dotted(call.func.value)
    if on == "self":
        return name in methods(owner)
    # a method of the data set's objects is unknown, unless its name is that of a pure one
    return not on.startswith("self.") or name in PURE or name in PURE_MORE


def _bound_by(kept: Sequence[Node]) -> list[str]:
    found = [name for statement in kept for one in below(statement) for name, _ in binding(one)]
    return list(dict.fromkeys(found))


def _is_read_behind(reads: Function, kept: Sequence[Node], name: str) -> bool:
    inside = {one for statement in kept for one in below(statement)}
    return any(isinstance(one, cst.Name) and one.value == name for one in below(reads.body) if one not in inside)
