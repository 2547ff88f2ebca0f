"""24: a model in double precision because NumPy's arrays came so."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.model import Claim, Evidence
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, replace
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import called, calls, qualified, words
from gpudoc.patterns import Pattern

ID = "float64-by-accident"
_LEAST = 0.5
_FROM_NUMPY = frozenset({"torch.from_numpy", "torch.as_tensor"})
_MEANT = Pattern(
    r"(?i)gradcheck|float64|set_default_dtype|finite_?diff|ode(?:int)?$|solver|laplac|hessian|lbfgs|cholesky|eigh?$|svd|"
    r"inverse|timestamp|money|price|longdouble|epsilon"
)
_LABELS = Pattern(r"(?i)cross_?entropy|nll_?loss|embedding")


def find(source: Source, evidence: Evidence) -> list[Proposal]:
    """The model's `.double()` and the arrays that it was written for."""
    if (evidence.float64_share or 0.0) < _LEAST:
        return []
    doubles = [call for call in calls(source.module) if called(call) == "double" and not call.args]
    origins = [call for call in calls(source.module) if qualified(source, call.func) in _FROM_NUMPY]
    if not doubles:
        return []
    site = RewriteSite(ID, Claim.ROUNDING, source, doubles[0])
    if len(doubles) > 1 or not origins:
        return [site.refuse("more than the arrays of NumPy is turned into double precision here")]
    meant = sorted(word for word in words(source) if _MEANT.search(word))
    if meant:
        return [site.refuse(f"`{meant[0]}` in this file: double precision may be meant")]
    labels = sorted(word for word in words(source) if _LABELS.search(word))
    if labels:
        return [site.refuse(f"`{labels[0]}` takes whole numbers, and which of the arrays holds them cannot be seen")]
    if any(_is_followed(source, call) for call in origins):
        return [site.refuse("the type of an array is set already where it becomes a tensor")]
    model = doubles[0].func.value if isinstance(doubles[0].func, cst.Attribute) else None
    if model is None:
        return [site.refuse("what is turned into double precision cannot be seen")]
    edits = [_without_double(source, doubles[0], model)]
    edits += [replace(source, call, f"{source.code(call)}.float()") for call in origins]
    return [site.change(edits, "Networks with ReLU may part from what they were after many steps.")]


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
