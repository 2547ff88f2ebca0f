"""24: a model in double precision only because NumPy's arrays are."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import (
    Proposal,
    Rewrite,
    RewriteSite,
    insert_line,
    replace,
    step_of_indent,
    torch_name,
)
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import bindings, called, calls, function_of, is_import, is_literal, qualified, words
from gpudoc.patterns import Pattern

ID = "float64-by-accident"
_LEAST = 0.4
_FROM_NUMPY = frozenset({"torch.from_numpy", "torch.as_tensor"})
_MOST_ORIGINS = 8
_MEANT = Pattern(
    r"(?i)gradcheck|float64|set_default_dtype|finite_?diff|(?:^|_)ode(?:int)?$|solver|laplac|hessian|lbfgs|cholesky|eigh?$|svd|"
    r"inverse|timestamp|money|price|longdouble|epsilon|datetime|(?:^|_)ids?$"
)
_LABELS = Pattern(r"(?i)cross_?entropy|nll_?loss|embedding")


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """The change or refusal for the model's `.double()` and the arrays that it was written for."""
    if (evidence.float64_share or 0.0) < _LEAST:
        return []
    doubles = [call for call in calls(source.module) if called(call) == "double" and not call.args]
    origins = [call for call in calls(source.module) if qualified(source, call.func) in _FROM_NUMPY]
    if not doubles:
        return _from_arrays(source)
    site = RewriteSite(ID, Claim.ROUNDING, source, doubles[0])
    if len(doubles) > 1 or not origins:
        return [site.refuse("more than the arrays of NumPy is turned into double precision here")]
    meant = sorted(word for word in words(source) if _MEANT.search(word))
    if meant:
        return [site.refuse(f"`{meant[0]}` in this file: double precision may be meant")]
    labels = sorted(word for word in words(source) if _LABELS.search(word))
    if labels:
        return [site.refuse(f"`{labels[0]}` takes integers, and the code does not show which array contains them")]
    if any(_is_followed(source, call) for call in origins):
        return [site.refuse("the type of an array is set already where it becomes a tensor")]
    model = doubles[0].func.value if isinstance(doubles[0].func, cst.Attribute) else None
    if model is None:
        return [site.refuse("the code does not show what is converted to double precision")]
    edits = [_without_double(source, doubles[0], model)]
    edits += [replace(source, call, f"{source.code(call)}.float()") for call in origins]
    return [site.change(edits, "Networks with ReLU may part from what they were after many steps.")]


def _from_arrays(source: Source) -> list[Proposal]:
    """The change or refusal for weights and data that are in double precision because arrays kept their type."""
    known = _FROM_NUMPY | {"torch.tensor"}
    origins = [
        call
        for call in calls(source.module)
        if qualified(source, call.func) in known and not _is_followed(source, call) and _is_array(call.args[0].value)
    ]
    if not origins:
        return []
    site = RewriteSite(ID, Claim.ROUNDING, source, origins[0])
    meant = sorted(word for word in words(source) if _MEANT.search(word))
    if meant:
        return [site.refuse(f"`{meant[0]}` in this file: double precision may be meant")]
    whole = [call for call in calls(source.module) if called(call) in ("long", "int") and call not in origins]
    whole = [call for call in whole if isinstance(call.func, cst.Attribute) and call.func.value not in origins]
    if whole:
        line = source.line(whole[0])
        return [site.refuse(f"line {line} makes whole numbers, which single precision may not hold above 2^24")]
    if len(origins) > _MOST_ORIGINS:
        return [site.refuse("more arrays become tensors here than one change may touch")]
    torch = torch_name(source)
    if not torch:
        return [site.refuse("the file does not import torch by a name that a new line could use")]
    edits = _in_its_function(source, origins[0], torch) if len(origins) == 1 else None
    edits = edits or _by_a_function(source, origins, torch)
    if edits is None:
        return [site.refuse("no name or no place after the imports is free for a new function")]
    return [site.change(edits, "Networks with ReLU may part from what they were after many steps.")]


def _is_array(value: Node) -> bool:
    # torch turns Python's numbers into single precision
    return not isinstance(value, cst.List | cst.ListComp | cst.Tuple) and not is_literal(value)


def _in_its_function(source: Source, origin: cst.Call, torch: str) -> list[Edit] | None:
    """The edit that splits `return torch.from_numpy(a)` into two lines; None for other statements."""
    back = source.parent(origin)
    if not isinstance(back, cst.Return):
        return None
    above = source.parent(back)
    function = function_of(source, back)
    if not isinstance(above, cst.SimpleStatementLine) or len(above.body) != 1 or function is None:
        return None
    if bindings(function, "made"):
        return None
    indent = source.indent(back)
    newline = source.newline(source.line(back))
    text = (
        f"made = {source.code(origin)}{newline}{indent}return made.float() if made.dtype == {torch}.float64 else made"
    )
    start, end = source.span(back)
    return [Edit(start, end, text)]


def _by_a_function(source: Source, origins: list[cst.Call], torch: str) -> list[Edit] | None:
    """The edits that add a function after the imports and pass each array through it."""
    lines = [
        source.last_line(one)
        for one in source.module.body
        if isinstance(one, cst.SimpleStatementLine) and any(is_import(part) for part in one.body)
    ]
    if not lines or "_single" in words(source) or any(source.line(one) <= max(lines) for one in origins):
        return None
    newline, step = source.newline(max(lines)), step_of_indent(source)
    text = [
        "", "", "def _single(values):",
        f"{step}return values.float() if values.dtype == {torch}.float64 else values",
    ]  # fmt: skip
    edits = [insert_line(source, max(lines) + 1, newline.join(text))]
    return edits + [replace(source, one, f"_single({source.code(one)})") for one in origins]


def _is_followed(source: Source, call: cst.Call) -> bool:
    above = source.parent(call)
    return len(call.args) != 1 or (
        isinstance(above, cst.Attribute) and above.attr.value in ("to", "float", "long", "int")
    )


def _without_double(source: Source, call: cst.Call, model: Node) -> Edit:
    above = source.parent(source.parent(call) or call)
    if (
        isinstance(source.parent(call), cst.Expr)
        and isinstance(above, cst.SimpleStatementLine)
        and len(above.body) == 1
    ):
        line = source.line(above)
        return Edit(source.line_start(line), source.line_start(source.last_line(above) + 1), "")
    return Edit(source.outer_span(model)[1], source.outer_span(call)[1], "")


FLOAT64_BY_ACCIDENT = Rewrite(ID, 24, Claim.ROUNDING, find)
