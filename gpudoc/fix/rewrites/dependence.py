"""What a value depends on, and whether anything changes it later: if not, it can be made once and kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from gpudoc.fix.model import RunEvidence
from gpudoc.fix.rewrites.base import insert_line, measured_lines, statements
from gpudoc.fix.rewrites.vocabulary import CHANGING, OPTIONS, READS_ONLY, VIEWS
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import (
    Function,
    argument,
    bases,
    below,
    binding,
    bindings,
    called,
    class_of,
    dotted,
    function_of,
    is_literal,
    loops_around,
    methods,
    qualified,
    scope_of,
    uses,
    words,
)

# arguments by which pandas and torch work in place
_IN_PLACE = ("inplace", "out")
_WORDS = frozenset({"True", "False", "None", "range", "len", "float", "int", "bool"})
_MAKES_PLAIN = frozenset({"str", "int", "float", "Path", "len", "join", "abspath", "expanduser", "tuple"})


@dataclass(frozen=True, slots=True)
class NamedValue:
    """`name = value` as a separate statement."""

    statement: cst.SimpleStatementLine
    name: str
    value: cst.BaseExpression


def measured_values(source: Source, evidence: RunEvidence) -> Iterator[NamedValue]:
    """The statements `name = value` that take a measured share of a step."""
    for statement in statements(source, measured_lines(source, evidence)):
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            continue
        part = statement.body[0]
        if isinstance(part, cst.Assign) and len(part.targets) == 1 and isinstance(part.targets[0].target, cst.Name):
            yield NamedValue(statement, part.targets[0].target.value, part.value)


def names_read(source: Source, value: Node) -> list[str]:
    """The variables that a value reads: `n`, `self.n`, `args.n`; not functions of imported modules."""
    names: list[str] = []
    for one in below(value):
        if not isinstance(one, cst.Name | cst.Attribute) or not dotted(one):
            continue
        above, name = source.parent(one), dotted(one)
        if isinstance(above, cst.Attribute):
            continue
        if isinstance(above, cst.Arg) and above.keyword is one:
            continue
        if isinstance(above, cst.Call) and above.func is one:
            # for a method, the object that it is called on
            name = name.rpartition(".")[0]
        if name and not qualified(source, one) and name not in _WORDS and not _is_counted(source, one, value):
            names.append(name)
    # what a method is called on inside of a longer chain: x in x.shape[0]
    return list(dict.fromkeys(names))


def _is_counted(source: Source, node: Node, value: Node) -> bool:
    """Whether a comprehension inside of `value` sets this name for itself."""
    name = dotted(node).partition(".")[0]
    for above in source.ancestors(node):
        if isinstance(above, cst.ListComp | cst.GeneratorExp | cst.SetComp | cst.DictComp):
            own = any(bound == name for bound, _ in binding(above.for_in))
            if own and not any(one is node for one in below(above.for_in.iter)):
                return True
        if above is value:
            return False
    return False


def not_constant(source: Source, statement: Node, name: str) -> str:
    """Why a variable may have another value in the next step; '' if it cannot."""
    if name.startswith("self."):
        return "" if is_set_once(source, statement, name) else f"`{name}` may be changed between two steps"
    scope, first = scope_of(source, statement), name.partition(".")[0]
    made: list[Node] = []
    for place in (scope, source.module):
        made = made or [one for word in dict.fromkeys((name, first)) for one in bindings(place, word)]
    made = [one for one in made if not isinstance(one, cst.Global)]
    if len(made) != 1:
        return f"`{name}` is set in {len(made)} places, so it may change between two steps"
    one = made[0]
    if loops_around(source, one) or isinstance(one, cst.For | cst.CompFor | cst.AugAssign):
        return f"`{name}` changes between two steps"
    if first != name:
        return (
            ""
            if first in OPTIONS and not {"setattr", "__dict__", "vars"} & words(source)
            else f"`{name}` may be changed between two steps"
        )
    value = one.value if isinstance(one, cst.Assign | cst.AnnAssign) else None
    if value is not None and (is_literal(value) or _is_number(source, value)):
        return ""
    return f"`{name}` may be a tensor, whose numbers change without a new name"


def _is_number(source: Source, value: Node) -> bool:
    if isinstance(value, cst.IfExp):
        return is_literal(value.body) and is_literal(value.orelse)
    if isinstance(value, cst.Call):
        return qualified(source, value.func) == "torch.device" or dotted(value.func) in ("len", "int", "float")
    # args.length
    return isinstance(value, cst.Attribute) and dotted(value).partition(".")[0] in OPTIONS


def is_set_once(source: Source, statement: Node, name: str) -> bool:
    """Whether only `__init__` sets `self.x`, and to a plain value: not a module, parameter or buffer."""
    if {"setattr", "__dict__"} & words(source):
        return False
    function = function_of(source, statement)
    owner = class_of(source, function) if function is not None else None
    initial = methods(owner).get("__init__") if owner is not None else None
    if initial is None:
        return False
    attr = name.split(".")[1]
    made = [
        one
        for one in source.nodes
        if isinstance(one, cst.Assign | cst.AugAssign | cst.AnnAssign | cst.Del)
        and any("." in bound and bound.split(".")[-1] == attr for bound, _ in binding(one))
        and not _is_of_another(source, owner, one, attr)
    ]
    if len(made) != 1 or made[0] not in set(below(initial)) or loops_around(source, made[0]):
        return False
    value = made[0].value if isinstance(made[0], cst.Assign | cst.AnnAssign) else None
    if isinstance(value, cst.Call):
        return called(value) in _MAKES_PLAIN
    return value is not None and not any(isinstance(one, cst.Call) for one in below(value))


def _is_of_another(source: Source, owner: cst.ClassDef | None, node: Node, attr: str) -> bool:
    """Whether `self.x` is set in a class that has nothing to do with `owner`."""
    function = function_of(source, node)
    other = class_of(source, function) if function is not None else None
    if owner is None or other is None or other is owner:
        return False
    if any("." in bound and bound != f"self.{attr}" for bound, _ in binding(node)):
        return False
    return owner.name.value not in bases(source, other) and other.name.value not in bases(source, owner)


def changed_later(source: Source, scope: Node, made: NamedValue) -> str:
    """The line that changes the value, or may do so, before the next step gets it; '' if there is none."""
    own = made.statement.body[0]
    names = [made.name]
    # a row of a table is a part of it
    for one in below(scope):
        if isinstance(one, cst.Assign) and one is not own and root(one.value) in names:
            names += [name for name, _ in binding(one) if "." not in name]
        if isinstance(one, cst.For) and root(one.iter) in names:
            names += [name for name, _ in binding(one)]
    for name in dict.fromkeys(names):
        for one in bindings(scope, name):
            written = isinstance(one, cst.AugAssign | cst.Del | cst.Global | cst.Nonlocal) or name == made.name
            if one is not own and (written or _writes_into(one, name)):
                return f"line {source.line(one)} sets or changes `{name}` again"
        for use in uses(source, scope, name):
            if reason := change_at(source, use, name, whole=name == made.name):
                return reason
    return ""


def _writes_into(node: Node, name: str) -> bool:
    return isinstance(node, cst.Assign) and any(
        isinstance(one.target, cst.Subscript | cst.Attribute) and root(one.target) == name for one in node.targets
    )


def root(node: Node) -> str:
    """The variable whose value or part of a value this is."""
    while True:
        if isinstance(node, cst.Subscript | cst.Attribute):
            node = node.value
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and called(node) in VIEWS:
            node = node.func.value
        else:
            break
    if isinstance(node, cst.Call) and node.args and called(node) in ("from_numpy", "as_tensor", "asarray"):
        return root(node.args[0].value)
    return node.value if isinstance(node, cst.Name) else ""


def change_at(source: Source, use: Node, name: str, *, whole: bool) -> str:
    """Why one use of a variable changes it, or lets other code change it."""
    line, part, above = source.line(use), use, source.parent(use)
    # rows["items"][0].append(1) changes rows as well
    while isinstance(above, cst.Attribute | cst.Subscript) and above.value is part:
        part, above = above, source.parent(above)
    if isinstance(part, cst.Attribute) and isinstance(above, cst.Call) and above.func is part:
        method = part.attr.value
        changing = method.endswith("_") or method in CHANGING
        if changing or any(argument(above, word) is not None for word in _IN_PLACE):
            return f"line {line} changes `{name}` in place"
    written = isinstance(above, cst.AssignTarget | cst.Del)
    if part is not use and (written or (isinstance(above, cst.AugAssign) and above.target is part)):
        return f"line {line} sets `{source.code(part)}`"
    if _changed_by_chain(source, use):
        return f"line {line} changes `{name}` in place"
    above = source.parent(use)
    if isinstance(above, cst.Arg):
        if above.keyword is not None and above.keyword.value == "out":
            return f"line {line} writes into `{name}`"
        outer = source.parent(above)
        if whole and isinstance(outer, cst.Call) and not _only_reads(source, outer):
            return f"line {line} hands `{name}` to `{called(outer) or 'a function'}`, which may change it"
    if whole and isinstance(above, cst.Return | cst.Yield | cst.Assign | cst.Element | cst.DictElement):
        return f"line {line} hands `{name}` on, and it may be changed there"
    return ""


def _changed_by_chain(source: Source, use: Node) -> bool:
    """Whether a chain such as `mask.view(-1).zero_()` writes into `mask`."""
    part, above = use, source.parent(use)
    while isinstance(above, cst.Attribute | cst.Subscript) and above.value is part:
        outer = source.parent(above)
        if isinstance(above, cst.Attribute) and isinstance(outer, cst.Call) and outer.func is above:
            method = above.attr.value
            if method not in VIEWS:
                return method.endswith("_") and not method.endswith("__")
            above = outer
        part, above = above, source.parent(above)
    return isinstance(above, cst.AssignTarget) and part is not use


def _only_reads(source: Source, call: cst.Call) -> bool:
    """Whether a call leaves its arguments unchanged, as far as this file shows."""
    name = called(call)
    if name.endswith("_"):
        return False
    if name in READS_ONLY or qualified(source, call.func).split(".")[0] in ("torch", "numpy"):
        return True
    shown = [one for one in source.nodes if isinstance(one, cst.FunctionDef) and one.name.value in (name, "forward")]
    others = [one for one in shown if one is not function_of(source, call)]
    return bool(shown) and not any(changes_in_place(one) for function in others for one in below(function))


def changes_in_place(node: Node) -> bool:
    """Whether a node writes into an existing value."""
    name = called(node) if isinstance(node, cst.Call) else ""
    written = isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Subscript)
    return written or isinstance(node, cst.AugAssign) or (name.endswith("_") and not name.endswith("__"))


def init_edit(source: Source, initial: Function, lines: list[str]) -> Edit | None:
    """The edit that adds lines at the end of `__init__`; None if it may return earlier."""
    if not isinstance(initial.body, cst.IndentedBlock) or any(isinstance(one, cst.Return) for one in below(initial)):
        return None
    indent = source.indent(initial.body.body[0])
    after = source.last_line(initial.body.body[-1]) + 1
    return insert_line(source, after, source.newline(after - 1).join(indent + line for line in lines))
