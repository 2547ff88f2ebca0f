"""7, continued: batches that are built number by number, as lists of lists, before they become tensors."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import Proposal, RewriteSite, measured_lines, replace, statements, torch_name
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import (
    Function,
    argument,
    below,
    binding,
    bindings,
    called,
    calls,
    dotted,
    function_of,
    is_literal,
    loops_around,
    name_of_import,
    qualified,
    scope_of,
    uses,
    words,
)

ID = "collate-lists"
_LEAST = 0.05
_TYPES = {"float": "float32", "int": "int64"}
_NO_TABLE = frozenset({"split", "zip", "map", "items", "values", "iter", "filter", "range"})
_MAKES = frozenset({"torch.tensor", "torch.FloatTensor"})
_READS_LISTS = _MAKES | {"torch.as_tensor", "torch.LongTensor", "torch.DoubleTensor", "torch.Tensor"}
_GIVES_NUMBER = frozenset({"float", "int", "bool", "len", "item", "tolist", "str", "sum", "min", "max", "ord", "index"})


@dataclass(frozen=True, slots=True)
class ListedRow:
    """`[float(v) for v in x]`, of one or two levels: the type of its numbers, and where they come from."""

    kind: str
    origin: cst.BaseExpression
    depth: int


def find_nested(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for `torch.tensor(rows)` if its function makes the rows float by float and takes time."""
    found: list[Proposal] = []
    for call in calls(source.module):
        function = function_of(source, call)
        if qualified(source, call.func) not in _MAKES or function is None or not call.args:
            continue
        share = sum(
            hot.share
            for hot in evidence.lines_in(source.path, least=0.0)
            if source.line(function) <= hot.line <= source.last_line(function)
        )
        if share >= _LEAST:
            found += _of(source, function, call)
    return found


def _of(source: Source, function: Function, call: cst.Call) -> list[Proposal]:
    value = call.args[0].value
    site = RewriteSite(ID, Claim.EXACT, source, call)
    if isinstance(value, cst.ListComp):
        row = _row(value.elt)
        if row is not None:
            reason, torch = _why_not(source, call, row), torch_name(source)
            if reason:
                return [site.refuse(reason)]
            return [
                site.change(
                    [
                        replace(source, call.func, f"{torch}.stack"),
                        replace(source, value.elt, _converted(source, torch, row)),
                        *_without_type(source, call),
                    ]
                )
            ]
        # another line of the function may take the time, so only the plainest lists are changed
        plain = "collate" in function.name.value and len(call.args) == 1 and isinstance(value.elt, cst.Name)
        return _through_numpy(source, [call]) if plain and _lists_arrays(source, value) else []
    if isinstance(value, cst.Name):
        return _of_appended(source, site, function, call, value.value)
    return []


def _row(value: Node) -> ListedRow | None:
    """The row that a comprehension makes number by number; None if it does anything else."""
    if not isinstance(value, cst.ListComp) or value.for_in.ifs or value.for_in.inner_for_in is not None:
        return None
    loop, elt = value.for_in, value.elt
    if isinstance(elt, cst.Call) and dotted(elt.func) in _TYPES and len(elt.args) == 1:
        same = dotted(elt.args[0].value) == dotted(loop.target) != "" and isinstance(loop.target, cst.Name)
        return ListedRow(dotted(elt.func), loop.iter, 1) if same else None
    inner = _row(elt)
    if inner is None or inner.depth > 1 or not dotted(loop.target) or dotted(inner.origin) != dotted(loop.target):
        return None
    return ListedRow(inner.kind, loop.iter, 2)


def _converted(source: Source, torch: str, row: ListedRow) -> str:
    return f"{torch}.as_tensor({source.code(row.origin)}, dtype={torch}.{_TYPES[row.kind]})"


def _why_not(source: Source, call: cst.Call, row: ListedRow) -> str:
    if not torch_name(source):
        return "the file does not import torch by a name that a new line could use"
    others = [one for one in call.args[1:] if dotted(one.keyword) != "dtype"]
    given = argument(call, "dtype")
    types = ("torch.float32", "torch.float") if row.kind == "float" else ("torch.int64", "torch.long")
    full = qualified(source, call.func)
    if others or (given is not None and qualified(source, given.value) not in types):
        return "the new tensor is given a type or a device, and the old ones may have another"
    if full == "torch.FloatTensor" and row.kind != "float":
        return "the new tensor is given a type or a device, and the old ones may have another"
    if {"set_default_dtype", "set_default_tensor_type", "set_default_device"} & words(source):
        return "the script changes what torch makes of Python's numbers"
    for one in below(row.origin):
        if isinstance(one, cst.Call) and called(one) in _NO_TABLE:
            return f"`{called(one)}` gives no table of numbers"
        if isinstance(one, cst.SimpleString | cst.GeneratorExp):
            return "what is made a list is not plainly one table of numbers"
    return ""


def _without_type(source: Source, call: cst.Call) -> list[Edit]:
    if len(call.args) < 2:
        return []
    return [Edit(source.outer_span(call.args[0].value)[1], source.outer_span(call.args[-1].value)[1], "")]


def find_arrays(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes for `torch.tensor(states)` of a list of arrays at measured lines: torch reads it number by number."""
    found: dict[Node, list[cst.Call]] = {}
    for statement in statements(source, measured_lines(source, evidence)):
        for call in calls(statement) if isinstance(statement, cst.SimpleStatementLine) else ():
            value = call.args[0].value if call.args and call.args[0].keyword is None else None
            if qualified(source, call.func) in _READS_LISTS and value is not None and _lists_arrays(source, value):
                found.setdefault(scope_of(source, call), []).append(call)
    return [proposal for taken in found.values() for proposal in _through_numpy(source, taken)]


def _through_numpy(source: Source, taken: list[cst.Call]) -> list[Proposal]:
    """One change that turns each list of arrays into one array; none if the file does not import NumPy."""
    numpy, values = name_of_import(source, "numpy"), [one.args[0].value for one in taken]
    if not numpy:
        return []
    edits = [replace(source, value, f"{numpy}.stack({source.code(value)})") for value in values]
    return [RewriteSite(ID, Claim.EXACT, source, taken[0]).change(edits)]


def _lists_arrays(source: Source, value: Node) -> bool:
    """Whether a value is a list or a tuple whose items may be arrays and are not obviously numbers."""
    if isinstance(value, cst.ListComp):
        return _may_be_array(value.elt)
    if isinstance(value, cst.Call) and dotted(value.func) in ("list", "tuple") and len(value.args) == 1:
        return isinstance(value.args[0].value, cst.Name) and not _is_number_name(dotted(value.args[0].value))
    # `batch.state` of `batch = Transition(*zip(*rows))`, and `state` of `state, reward = zip(*rows)`
    named = isinstance(value, cst.Attribute) and isinstance(value.value, cst.Name)
    if not (named or isinstance(value, cst.Name)) or _is_number_name(dotted(value).rpartition(".")[2]):
        return False
    scope, name = scope_of(source, value), dotted(value).partition(".")[0]
    above = set(source.ancestors(value))
    made = [one for one in bindings(scope, name) if one not in above]
    if len(made) != 1 or not isinstance(made[0], cst.Assign):
        return False
    if "zip(*" in source.code(made[0].value):
        return isinstance(made[0].targets[0].target, cst.Tuple) != named
    if named:
        return False
    whole = made[0].value.elements if isinstance(made[0].value, cst.Tuple) else [made[0].value]
    if all(source.code(one.value if isinstance(one, cst.Element) else one) in ("[]", "list()") for one in whole):
        filled = [one for one in calls(scope) if dotted(one.func) == f"{name}.append" and len(one.args) == 1]
        appended = [one.args[0].value for one in filled]
        return bool(filled) and all(_may_be_array(one) and not _is_list(scope, one) for one in appended)
    return isinstance(made[0].value, cst.ListComp) and _may_be_array(made[0].value.elt)


def _may_be_array(value: Node) -> bool:
    if isinstance(value, cst.Call):
        return called(value) not in _GIVES_NUMBER
    if isinstance(value, cst.BinaryOperation):
        return _may_be_array(value.left) or _may_be_array(value.right)
    return isinstance(value, cst.Name | cst.Subscript | cst.Attribute) and not _is_number_name(dotted(value))


def _is_list(scope: Node, value: Node) -> bool:
    """Whether a variable is set to a list of numbers, for which NumPy would choose another type than torch."""
    made = [one for one in bindings(scope, dotted(value)) if isinstance(one, cst.Assign)]
    return any(isinstance(one.value, cst.List | cst.ListComp) for one in made)


def _is_number_name(name: str) -> bool:
    of_numbers = ("label", "target", "len", "cls", "class", "id", "action", "reward", "done", "mask")
    return any(word in name.lower() for word in of_numbers) or name in ("y", "t")


def _of_appended(source: Source, site: RewriteSite, function: Function, call: cst.Call, name: str) -> list[Proposal]:
    """The change or refusal for `rows = []`, `rows.append(...)` in one loop, then `torch.tensor(rows)`."""
    listed = uses(source, function, name)
    appends = [one for one in calls(function) if dotted(one.func) == f"{name}.append" and len(one.args) == 1]
    if len(appends) != 1 or not loops_around(source, appends[0]):
        return []
    appended = appends[0].args[0].value
    row = _row(appended)
    steps: list[Edit] = []
    torch = torch_name(source)
    if row is None and isinstance(appended, cst.Name):
        found = _padded(source, function, appended, torch)
        if found is None:
            return []
        row, steps, reason = found
        if reason:
            return [site.refuse(reason)]
    elif row is not None:
        steps = [replace(source, appended, _converted(source, torch, row))]
    if row is None:
        return []
    made = [one for one in below(function) for bound, _ in binding(one) if bound == name]
    empty = len(made) == 1 and isinstance(made[0], cst.Assign) and source.code(made[0].value) in ("[]", "list()")
    if not empty or len(listed) != 3:
        return [site.refuse(f"`{name}` is used for more than the new tensor")]
    if reason := _why_not(source, call, row):
        return [site.refuse(reason)]
    return [site.change([*steps, replace(source, call.func, f"{torch}.stack"), *_without_type(source, call)])]


def _padded(
    source: Source, function: Function, appended: cst.Name, torch: str
) -> tuple[ListedRow, list[Edit], str] | None:
    """The edits that turn `rows = [[float(v) ...] ...]` and `rows += [[0.0] * width] * more` into tensors."""
    name = appended.value
    made = [one for one in below(function) if any(bound == name for bound, _ in binding(one))]
    assigned = [one for one in made if isinstance(one, cst.Assign)]
    row = _row(assigned[0].value) if len(assigned) == 1 else None
    if row is None:
        return None
    edits = [replace(source, assigned[0].value, _converted(source, torch, row))]
    left = {*uses(source, function, name)} - {appended}
    left -= {one for one in left if any(above is assigned[0] for above in source.ancestors(one))}
    for one in made:
        if one is assigned[0]:
            continue
        text = _padding(source, one, name, row, torch) if isinstance(one, cst.AugAssign) else ""
        if not text:
            return row, [], f"line {source.line(one)} changes `{name}` in a way that no tensor could be changed in"
        edits.append(Edit(*source.span(one), text))
        left -= {use for use in left if any(above is one for above in source.ancestors(use))}
    for one in left:
        above = source.parent(one)
        outer = source.parent(above) if isinstance(above, cst.Arg) else None
        if not (isinstance(outer, cst.Call) and dotted(outer.func) == "len"):
            return row, [], f"line {source.line(one)} uses `{name}` as a list"
    return row, edits, ""


def _padding(source: Source, one: cst.AugAssign, name: str, row: ListedRow, torch: str) -> str:
    """`rows = torch.cat([rows, torch.zeros(more, width)])` for `rows += [[0.0] * width] * more`, else ''."""
    value = one.value
    if not isinstance(one.operator, cst.AddAssign) or not isinstance(value, cst.BinaryOperation):
        return ""
    if not isinstance(value.operator, cst.Multiply) or not isinstance(value.left, cst.List):
        return ""
    sizes, items = [_bare(source, value.right)], value.left.elements
    inner = items[0].value if len(items) == 1 else None
    if row.depth == 2:
        if not isinstance(inner, cst.BinaryOperation) or not isinstance(inner.operator, cst.Multiply):
            return ""
        sizes.append(_bare(source, inner.right))
        inner = (
            inner.left.elements[0].value if isinstance(inner.left, cst.List) and len(inner.left.elements) == 1 else None
        )
    if inner is None or not is_literal(inner) or isinstance(inner, cst.SimpleString | cst.List | cst.Tuple | cst.Name):
        return ""
    if row.kind == "int" and not isinstance(inner, cst.Integer):
        return ""
    kind = f", dtype={torch}.int64" if row.kind == "int" else ""
    zero = isinstance(inner, cst.Integer | cst.Float) and inner.evaluated_value == 0
    if zero:
        filled = f"{torch}.zeros({', '.join(sizes)}{kind})"
    else:
        tail = "," if len(sizes) == 1 else ""
        filled = f"{torch}.full(({', '.join(sizes)}{tail}), {_number_text(source, inner, row)}{kind})"
    return f"{name} = {torch}.cat([{name}, {filled}])"


def _number_text(source: Source, inner: cst.BaseExpression, row: ListedRow) -> str:
    """The text of a number, made a float if the row holds floats."""
    text = source.code(inner)
    return f"float({text})" if row.kind == "float" and "." not in text else text


def _bare(source: Source, node: cst.BaseExpression) -> str:
    start, end = source.span(node)
    return source.text[start:end]
