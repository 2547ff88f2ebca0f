"""39: an array that grows row by row through a copy of all rows each time."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import (
    Proposal,
    Rewrite,
    RewriteSite,
    import_edits,
    measured_lines,
    replace,
    statements,
    step_of_indent,
    torch_name,
)
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import argument, called, dotted, is_import, leaves, name_of_import, qualified, words

ID = "growth-by-copy"
_JOINS = {"numpy.concatenate": "numpy", "numpy.append": "numpy", "torch.cat": "torch", "torch.concat": "torch"}
_ALONG = {"numpy": "axis", "torch": "dim"}
_HELPER, _ROOMS = "grown", "_ROOMS"
# a helper and this many sites fit into the allowed lines of a change
_MOST_SITES = 2
# methods that change their object
_IN_PLACE = frozenset({"sort", "fill", "resize", "put", "partition", "itemset", "setflags"})


@dataclass(frozen=True, slots=True)
class _Growth:
    """`rows = np.concatenate([rows, new])[-most:]`: its value, the growing array, new rows, how many rows stay."""

    value: cst.BaseExpression
    rows: str
    new: cst.BaseExpression
    library: str
    most: cst.BaseExpression | None


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for measured lines that join an array and new rows to an array of the same name."""
    found: dict[str, list[_Growth]] = {}
    for statement in statements(source, measured_lines(source, evidence)):
        growth = _growth(source, statement)
        if growth is not None:
            found.setdefault(growth.library, []).append(growth)
    return [_in_free_space(source, library, growths) for library, growths in found.items()]


def _growth(source: Source, statement: Node) -> _Growth | None:
    part = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1 else None
    if not isinstance(part, cst.Assign) or len(part.targets) != 1:
        return None
    rows, value, most = dotted(part.targets[0].target), part.value, None
    if isinstance(value, cst.Subscript):
        most = _last_rows(value)
        if most is None:
            return None
        value = value.value
    library = _JOINS.get(qualified(source, value.func), "") if isinstance(value, cst.Call) else ""
    joined = _joined(source, value, library) if isinstance(value, cst.Call) and library else None
    if not rows or joined is None or dotted(joined[0]) != rows:
        return None
    return _Growth(part.value, rows, joined[1], library, most)


def _last_rows(value: cst.Subscript) -> cst.BaseExpression | None:
    """`most` in `[-most:]`; None for any other subscript."""
    inside = value.slice[0].slice if len(value.slice) == 1 else None
    if not isinstance(inside, cst.Slice) or inside.upper is not None or inside.step is not None:
        return None
    lower = inside.lower
    is_end = isinstance(lower, cst.UnaryOperation) and isinstance(lower.operator, cst.Minus)
    return lower.expression if is_end and isinstance(lower, cst.UnaryOperation) else None


def _joined(source: Source, call: cst.Call, library: str) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """The two arrays that a call joins along the first dimension; None for other calls."""
    is_append = qualified(source, call.func) == "numpy.append"
    along = argument(call, _ALONG[library], 2 if is_append else 1)
    # without an axis, append flattens
    if (is_append and along is None) or (along is not None and source.code(along.value) != "0"):
        return None
    given = [arg for arg in call.args if arg is not along]
    if any(arg.keyword is not None or arg.star for arg in given):
        return None
    if is_append:
        return (given[0].value, given[1].value) if len(given) == 2 else None
    pair = given[0].value if len(given) == 1 else None
    if not isinstance(pair, cst.List | cst.Tuple) or len(pair.elements) != 2:
        return None
    first, second = pair.elements
    if isinstance(first, cst.StarredElement) or isinstance(second, cst.StarredElement):
        return None
    return first.value, second.value


def _in_free_space(source: Source, library: str, growths: list[_Growth]) -> Proposal:
    site = RewriteSite(ID, Claim.EXACT, source, growths[0].value)
    if reason := next((text for one in growths if (text := _why_not(source, one))), ""):
        return site.refuse(reason)
    alias = name_of_import(source, "numpy") if library == "numpy" else torch_name(source)
    tops = [one for one in source.module.body if isinstance(one, cst.SimpleStatementLine) and is_import(one.body[0])]
    above = [one for one in tops if source.line(one) < source.line(growths[0].value)]
    added = import_edits(source, "weakref")
    if not alias or added is None or not above:
        return site.refuse(f"the file does not import {library} by a name that a new line could use")
    behind = source.line_start(source.last_line(above[-1]) + 1)
    edits = [replace(source, one.value, _call(source, one)) for one in growths[:_MOST_SITES]]
    return site.change([*added, Edit(behind, behind, _helper(source, library, alias)), *edits])


def _call(source: Source, growth: _Growth) -> str:
    given = [growth.rows, source.code(growth.new)]
    if growth.most is not None:
        given.append(source.code(growth.most))
    return f"{_HELPER}({', '.join(given)})"


def _why_not(source: Source, growth: _Growth) -> str:
    if taken := {_HELPER, _ROOMS, "weakref"} & words(source):
        return f"`{min(taken)}` is a name of this file already"
    for one in source.nodes:
        if any(_is_same(part, growth.rows) for part in _written_in_place(one)):
            return f"line {source.line(one)} changes `{growth.rows}` in place"
    return ""


def _is_same(part: Node, rows: str) -> bool:
    """Whether a part may be the growing array: an attribute of that name on any object, or the same variable."""
    if "." in rows:
        return isinstance(part, cst.Attribute) and part.attr.value == rows.rpartition(".")[2]
    return dotted(part) == rows


def _written_in_place(one: Node) -> list[Node]:
    """The parts that a node changes in place, so that an older array over the same memory would change too."""
    if isinstance(one, cst.Assign):
        targets: list[Node] = [two.target for two in one.targets if isinstance(two.target, cst.Subscript)]
        return [part for target in targets for part in leaves(target)]
    if isinstance(one, cst.AugAssign):
        return list(leaves(one.target))
    if not isinstance(one, cst.Call):
        return []
    name = called(one)
    if name == "shuffle":
        return [arg.value for arg in one.args]
    in_place = name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))
    return [one.func.value] if in_place and isinstance(one.func, cst.Attribute) else []


def _helper(source: Source, library: str, alias: str) -> str:
    """The text of a function that writes new rows after the old ones, and only copies old rows if there is no room."""
    step, newline = step_of_indent(source), source.newline(1)
    shape = "(2 * end, *rows.shape[1:])"
    text = [
        "",
        f"{_ROOMS} = {{}}",
        "",
        "",
        f"def {_HELPER}(rows, new, most=None):",
        f"{step}# the new rows go into free space behind the old ones, which are copied when there is none left",
        f"{step}room, end = {_ROOMS}.pop(id(rows), (rows, len(rows)))",
        f"{step}first, end = end - len(rows), end + len(new)",
        f"{step}if end > len(room):",
        f"{step}{step}first, end = 0, len(rows) + len(new)",
        f"{step}{step}room = "
        + (f"{alias}.empty({shape}, rows.dtype)" if library == "numpy" else f"rows.new_empty({shape})"),
        f"{step}{step}room[: len(rows)] = rows",
        f"{step}room[end - len(new) : end] = new",
        f"{step}rows = room[max(first, end - most) if most else first : end]",
        f"{step}{_ROOMS}[id(rows)] = room, end",
        f"{step}weakref.finalize(rows, {_ROOMS}.pop, id(rows), None)",
        f"{step}return rows",
    ]
    return newline.join(text) + newline


GROWTH_BY_COPY = Rewrite(ID, 39, Claim.EXACT, find)
