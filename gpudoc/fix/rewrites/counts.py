"""37: pairs that a Python loop counts one by one, mostly into a confusion matrix."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, measured_lines, statements, step_of_indent
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import (
    below,
    binding,
    called,
    dotted,
    name_of_import,
    qualified,
    scope_of,
    uses,
    words,
)

ID = "counts-in-loop"
# methods that return a tensor or an array of one dimension
_FLAT = {"view": "-1", "reshape": "-1", "flatten": "", "ravel": ""}
# only a single number has one of these
_OF_ONE = frozenset({"int", "item"})


@dataclass(frozen=True, slots=True)
class _Counting:
    """`for t, p in zip(a, b): table[t, p] += 1`: the loop, the table, the added number, and the counted values."""

    loop: cst.For
    table: str
    step: str
    counted: tuple[cst.BaseExpression, ...]


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for a measured loop over pairs whose only line adds a number at a pair's place in a table."""
    found: list[Proposal] = []
    for statement in statements(source, measured_lines(source, evidence)):
        loop = next((one for one in (statement, *source.ancestors(statement)) if isinstance(one, cst.For)), None)
        counting = _counting(source, loop) if loop is not None else None
        if counting is not None and (proposal := _at_once(source, counting)) not in found:
            found.append(proposal)
    return found


def _counting(source: Source, loop: cst.For) -> _Counting | None:
    body = loop.body.body
    line = body[0] if len(body) == 1 and loop.orelse is None else None
    part = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
    if not isinstance(part, cst.AugAssign) or not isinstance(part.operator, cst.AddAssign):
        return None
    target, names = part.target, loop.target.elements if isinstance(loop.target, cst.Tuple) else ()
    pairs = loop.iter.args if isinstance(loop.iter, cst.Call) and dotted(loop.iter.func) == "zip" else ()
    if not isinstance(target, cst.Subscript) or not isinstance(part.value, cst.Integer) or not dotted(target.value):
        return None
    if not 1 < len(pairs) == len(names) == len(target.slice) or any(one.star or one.keyword for one in pairs):
        return None
    for name, pair, place in zip(names, pairs, target.slice, strict=True):
        index = place.slice.value if isinstance(place.slice, cst.Index) else None
        if index is None or not _is_single(name.value, index, pair.value):
            return None
    counted = tuple(one.value for one in pairs)
    return _Counting(loop, dotted(target.value), source.code(part.value), counted)


def _is_single(name: Node, index: cst.BaseExpression, counted: cst.BaseExpression) -> bool:
    """Whether an index is the loop's own variable, and certainly a single number."""
    single = isinstance(counted, cst.Call) and (called(counted) == "tolist" or _is_flat(counted))
    while isinstance(index, cst.Call):
        if called(index) not in ("int", "item", "long"):
            return False
        single = single or called(index) in _OF_ONE
        if isinstance(index.func, cst.Attribute) and not index.args:
            index = index.func.value
        elif dotted(index.func) == "int" and len(index.args) == 1:
            index = index.args[0].value
        else:
            return False
    return single and dotted(index) == dotted(name) != ""


def _is_flat(call: cst.Call) -> bool:
    """Whether a call is `x.view(-1)` or `x.flatten()`, also if a type or a device follows."""
    while isinstance(call.func, cst.Attribute):
        given = ", ".join(cst.Module([]).code_for_node(one.value) for one in call.args)
        if call.func.attr.value in _FLAT and _FLAT[call.func.attr.value] == given:
            return True
        if call.func.attr.value not in ("long", "int", "cpu", "detach", "numpy") or not isinstance(
            call.func.value, cst.Call
        ):
            return False
        call = call.func.value
    return False


def _at_once(source: Source, counting: _Counting) -> Proposal:
    site = RewriteSite(ID, Claim.EXACT, source, counting.loop)
    if reason := _why_not(source, counting):
        return site.refuse(reason)
    made = _makes(source, counting.table)
    parts, table = [_whole(source, one) for one in counting.counted], counting.table
    if made == "numpy":
        numpy = name_of_import(source, "numpy")
        text = f"{numpy}.add.at({table}, ({', '.join(parts)}), {counting.step})"
    else:
        there = f".to({table}.device)" if {"cuda", "device"} & words(source) else ""
        places = ", ".join(f"{one}.long(){there}" for one in parts)
        indent, newline = source.indent(counting.loop), source.newline(source.line(counting.loop))
        step = step_of_indent(source)
        given = [f"({places}),", f"{table}.new_tensor({counting.step}),", "accumulate=True,"]
        inner = "".join(f"{newline}{indent}{step}{one}" for one in given)
        text = f"{table}.index_put_({inner}{newline}{indent})"
    start, end = source.span(counting.loop)[0], source.span(counting.loop.body.body[-1])[1]
    return site.change([Edit(start, end, text)])


def _whole(source: Source, counted: cst.BaseExpression) -> str:
    """The counted values, without the `tolist()` that the loop needed."""
    if isinstance(counted, cst.Call) and called(counted) == "tolist" and isinstance(counted.func, cst.Attribute):
        return source.code(counted.func.value)
    return source.code(counted)


def _why_not(source: Source, counting: _Counting) -> str:
    scope, inside = scope_of(source, counting.loop), set(below(counting.loop))
    for name, _ in binding(counting.loop):
        if any(one not in inside for one in uses(source, scope, name)):
            return f"`{name}` of the last pair is used behind the loop"
    made = _makes(source, counting.table)
    if not made:
        return f"whether `{counting.table}` is a tensor or an array cannot be seen in this file"
    if made == "torch" and {"requires_grad", "sparse_coo_tensor"} & words(source):
        return f"`{counting.table}` may be more than a table of counts"
    return ""


def _makes(source: Source, table: str) -> str:
    """`torch` or `numpy`: the module with which every statement makes the table; '' if that is not clear."""
    made: list[Node] = []
    for one in source.nodes:
        if isinstance(one, cst.Assign | cst.AnnAssign) and one.value is not None:
            targets = one.targets if isinstance(one, cst.Assign) else [one]
            if any(isinstance(two.target, cst.Name | cst.Attribute) and dotted(two.target) == table for two in targets):
                made.append(one.value)
    fulls = [qualified(source, one.func) if isinstance(one, cst.Call) else "" for one in made]
    kinds = {full.partition(".")[0] for full in fulls if full in ("torch.zeros", "numpy.zeros")}
    whole = bool(fulls) and all(full in ("torch.zeros", "numpy.zeros") for full in fulls)
    return kinds.pop() if whole and len(kinds) == 1 else ""


COUNTS_IN_LOOP = Rewrite(ID, 37, Claim.EXACT, find)
