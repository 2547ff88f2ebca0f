"""10: scores of a whole evaluation that are kept although only the largest column of each row is used."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, measured_lines, replace, statements
from gpudoc.fix.rewrites.dependence import root
from gpudoc.fix.source import Node, Source
from gpudoc.fix.tree import below, bindings, binds, called, calls, loops_around, qualified, scope_of, uses

ID = "kept-outputs"
_CATS = ("torch.cat", "torch.concat", "torch.concatenate")
# each row of their results only depends on the same row
_BY_ROW = frozenset({"softmax", "log_softmax"})
_BY_NUMBER = frozenset({"sigmoid", "float", "cpu", "detach"})
_DONE = frozenset({"argmax", "tolist", "numpy", "item", "indices"})


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for `kept.append(logits)` or `[model(x) for x in ...]` if only the largest column is used."""
    lines = [line for file, line in evidence.keeps_at if file == source.path]
    asked = statements(source, [*lines, *measured_lines(source, evidence)])
    if evidence.evaluation_grows:
        # memory that an evaluation keeps is free again before the next step: no step shows its line
        asked += [one for one in source.nodes if isinstance(one, cst.SimpleStatementLine) and one not in asked]
    found: list[Proposal] = []
    for statement in asked:
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            continue
        part = statement.body[0]
        call = part.value if isinstance(part, cst.Expr) else None
        if isinstance(call, cst.Call) and called(call) == "append" and len(call.args) == 1:
            kept = call.func.value if isinstance(call.func, cst.Attribute) else None
            if isinstance(kept, cst.Name) and loops_around(source, statement):
                found += _reduced(source, kept, call)
        else:
            found += _in_a_list(source, statement)
    return found


def _in_a_list(source: Source, statement: Node) -> list[Proposal]:
    """Changes for `torch.cat([model(x) for x in ...]).argmax(1)`: the argmax moves to each element."""
    found: list[Proposal] = []
    for cat in calls(statement):
        if not _joins(source, cat) or not isinstance(cat.args[0].value, cst.ListComp):
            continue
        pick = _pick_of(source, cat)
        element = cat.args[0].value.elt
        if pick is None or not _is_made(element):
            continue
        site = RewriteSite(ID, Claim.EXACT, source, cat)
        before, after = _around(source, cat, pick)
        start, end = source.outer_span(cat.args[0].value)
        inner = source.outer_span(element)
        text = source.text[start : inner[0]] + before + source.code(element) + after + source.text[inner[1] : end]
        kept = source.text[source.outer_span(cat)[0] : start] + text + source.text[end : source.outer_span(cat)[1]]
        found.append(site.change([replace(source, pick, kept)]))
    return found


def _is_made(value: Node) -> bool:
    """Whether a value is a call whose result is not reduced yet."""
    return isinstance(value, cst.Call) and called(value) not in _DONE and called(value) != "max"


def _reduced(source: Source, kept: cst.Name, append: cst.Call) -> list[Proposal]:
    name, scope = kept.value, scope_of(source, kept)
    site = RewriteSite(ID, Claim.EXACT, source, append)
    reads = [use for use in uses(source, scope, name) if use is not kept and not binds(source, use)]
    picked = [found for use in reads if (found := _pick_of_cat(source, use)) is not None]
    if not picked:
        return []
    if len(picked) != 1 or len(reads) != 1:
        return [site.refuse(f"`{name}` is used for more than its largest column, and is needed whole")]
    if len([one for one in bindings(scope, name) if isinstance(one, cst.Assign)]) != 1:
        return [site.refuse(f"`{name}` is set in several places")]
    value, (pick, cat) = append.args[0].value, picked[0]
    if reason := _written_in_place(source, scope, root(value)):
        return [site.refuse(reason)]
    if isinstance(value, cst.Call | cst.Attribute) and _name_of(value) in _DONE:
        return []
    code = source.code(value)
    if not isinstance(value, cst.Name | cst.Attribute | cst.Call | cst.Subscript) and not value.lpar:
        code = f"({code})"
    before, after = _around(source, cat, pick)
    return [site.change([replace(source, value, before + code + after), replace(source, pick, source.code(cat))])]


def _name_of(value: cst.Call | cst.Attribute) -> str:
    return called(value) if isinstance(value, cst.Call) else value.attr.value


def _around(source: Source, cat: cst.Call, pick: Node) -> tuple[str, str]:
    """The text before and after `torch.cat(...)` in the expression that picks the column."""
    inner, outer = source.outer_span(cat), source.outer_span(pick)
    return source.text[outer[0] : inner[0]], source.text[inner[1] : outer[1]]


def _written_in_place(source: Source, scope: Node, name: str) -> str:
    """The line that changes a kept value in place, perhaps after it was kept; '' if there is none."""
    for one in below(scope):
        target: Node | None = None
        if isinstance(one, cst.Call) and isinstance(one.func, cst.Attribute):
            target = one.func.value if called(one).endswith("_") else None
        elif isinstance(one, cst.AugAssign):
            target = one.target
        elif isinstance(one, cst.AssignTarget):
            target = one.target if isinstance(one.target, cst.Subscript) else None
        if name and target is not None and root(target) == name:
            return f"line {source.line(one)} changes `{name}` in place, perhaps after it was kept"
    return ""


def _pick_of_cat(source: Source, use: Node) -> tuple[Node, cst.Call] | None:
    """`torch.cat(kept).argmax(1)` and its `torch.cat(kept)` around a use of `kept`; None if there are none."""
    arg = source.parent(use)
    cat = source.parent(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(cat, cst.Call) or not _joins(source, cat) or cat.args[0] is not arg:
        return None
    pick = _pick_of(source, cat)
    return None if pick is None else (pick, cat)


def _joins(source: Source, cat: cst.Call) -> bool:
    """Whether a call joins tensors along the first dimension."""
    if qualified(source, cat.func) not in _CATS or not cat.args:
        return False
    return len(cat.args) == 1 or (len(cat.args) == 2 and source.code(cat.args[1].value) == "0")


def _pick_of(source: Source, cat: cst.Call) -> Node | None:
    """The node that picks each row's largest column after a join: `.argmax(1)`, also after row-wise functions."""
    node: Node = cat
    while True:
        above = source.parent(node)
        if isinstance(above, cst.Attribute) and above.value is node:
            call = source.parent(above)
            if not isinstance(call, cst.Call) or call.func is not above:
                return None
            name, given = above.attr.value, list(call.args)
        elif isinstance(above, cst.Arg):
            call = source.parent(above)
            full = qualified(source, call.func) if isinstance(call, cst.Call) else ""
            if not isinstance(call, cst.Call) or not full.startswith("torch.") or call.args[0] is not above:
                return None
            name, given = full.rpartition(".")[2], list(call.args[1:])
        else:
            return None
        row = _is_row(source, given)
        if name == "argmax" and row:
            return call
        if name == "max" and row:
            return _indices(source, call)
        if not ((name in _BY_ROW and row) or (name in _BY_NUMBER and not given)):
            return None
        node = call


def _is_row(source: Source, given: list[cst.Arg]) -> bool:
    """Whether the only argument is the dimension within a row: 1 or -1."""
    if len(given) != 1 or (given[0].keyword is not None and given[0].keyword.value != "dim"):
        return False
    return source.code(given[0].value) in ("1", "-1")


def _indices(source: Source, call: cst.Call) -> Node | None:
    """`.max(1)[1]` and `.max(1).indices`, not the values."""
    above = source.parent(call)
    if isinstance(above, cst.Attribute) and above.attr.value == "indices":
        return above
    if isinstance(above, cst.Subscript) and above.value is call and len(above.slice) == 1:
        index = above.slice[0].slice
        return above if isinstance(index, cst.Index) and source.code(index.value) == "1" else None
    return None


KEPT_OUTPUTS = Rewrite(ID, 10, Claim.EXACT, find)
