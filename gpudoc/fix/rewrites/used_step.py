"""40: a layer over all steps of a sequence although only one step is used."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, measured_lines, statements
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import (
    Function,
    argument,
    bindings,
    called,
    calls,
    class_of,
    dotted,
    function_of,
    is_whole,
    methods,
    qualified,
    uses,
)

ID = "one-step-used"
# layers that compute each step separately, only from its features
_BY_STEP = frozenset(
    {"Linear", "LayerNorm", "RMSNorm", "ReLU", "GELU", "SiLU", "ELU", "LeakyReLU", "Tanh", "Sigmoid", "Identity"}
    | {"Hardtanh", "Mish", "Softplus"}
)
_FUNCTIONS = frozenset({"relu", "gelu", "silu", "elu", "leaky_relu", "tanh", "sigmoid", "softplus", "mish"})


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes for a measured `scores = self.out(hidden)` of which only `scores[:, -1]` is used."""
    found: list[Proposal] = []
    for statement in statements(source, measured_lines(source, evidence)):
        function = function_of(source, statement)
        if function is None:
            continue
        for call in _outermost(source, statement):
            inner = _input_of(source, function, call)
            step = None if inner is None else _step_taken(source, function, call)
            if inner is not None and step is not None:
                site = RewriteSite(ID, Claim.ROUNDING, source, call)
                found.append(site.change(_taken_before(source, inner, *step)))
    return found


def _outermost(source: Source, statement: Node) -> list[cst.Call]:
    """The calls in a statement that are not arguments of another call."""
    return [one for one in calls(statement) if not isinstance(source.parent(one), cst.Arg)]


def _input_of(source: Source, function: Function, call: Node) -> cst.BaseExpression | None:
    """`hidden` in `self.out(self.norm(hidden))`; None unless every layer works by step and one of them is linear."""
    value: cst.BaseExpression | None = call if isinstance(call, cst.Call) else None
    kinds: list[str] = []
    while isinstance(value, cst.Call):
        layers = _layers(source, function, value)
        if not layers or len(value.args) != 1 or value.args[0].keyword is not None or value.args[0].star:
            break
        kinds += layers
        value = value.args[0].value
    return value if "Linear" in kinds and not isinstance(value, cst.Call | cst.Subscript) else None


def _layers(source: Source, function: Function, call: cst.Call) -> list[str]:
    """The kinds of layers that a call runs, all of which work by step; empty if one does not, or is unknown."""
    full = qualified(source, call.func)
    if full.startswith("torch.") and called(call) in _FUNCTIONS:
        return [called(call)]
    name, owner = dotted(call.func), class_of(source, function)
    setup = None if owner is None else methods(owner).get("__init__")
    if setup is None or not name.startswith("self."):
        return []
    made = [one for one in bindings(owner, name) if isinstance(one, cst.Assign)] if owner is not None else []
    if len(made) != 1 or function_of(source, made[0]) is not setup or not isinstance(made[0].value, cst.Call):
        return []
    return _kinds(source, made[0].value)


def _kinds(source: Source, made: cst.Call) -> list[str]:
    full = qualified(source, made.func)
    kind = called(made) if full.startswith("torch.nn.") else ""
    if kind == "Sequential":
        inner = [_kinds(source, one.value) if isinstance(one.value, cst.Call) else [] for one in made.args]
        return [kind for one in inner for kind in one] if all(inner) else []
    # a norm over several dimensions uses more than the features
    shape = argument(made, "normalized_shape", 0) if kind in ("LayerNorm", "RMSNorm") else None
    if shape is not None and isinstance(shape.value, cst.Tuple | cst.List):
        return []
    return [kind] if kind in _BY_STEP else []


def _step_taken(source: Source, function: Function, call: cst.Call) -> tuple[cst.Subscript, str] | None:
    """The only use of a call's value, `scores[:, -1]`, and its step as text."""
    above = source.parent(call)
    if isinstance(above, cst.Subscript) and above.value is call:
        text = _step(source, above)
        return (above, text) if text else None
    if not isinstance(above, cst.Assign) or len(above.targets) != 1:
        return None
    target = above.targets[0].target
    if not isinstance(target, cst.Name):
        return None
    used = [one for one in uses(source, function, target.value) if one is not target]
    taken = source.parent(used[0]) if len(used) == 1 else None
    if not isinstance(taken, cst.Subscript) or taken.value is not used[0] or len(bindings(function, target.value)) != 1:
        return None
    text = _step(source, taken)
    return (taken, text) if text else None


def _step(source: Source, taken: cst.Subscript) -> str:
    """`-1` for `[:, -1]` and `[:, -1, :]`; '' for everything else."""
    inside = [one.slice for one in taken.slice]
    if len(inside) not in (2, 3) or any(not is_whole(one) for one in (inside[0], *inside[2:])):
        return ""
    index = inside[1].value if isinstance(inside[1], cst.Index) else None
    number = index.expression if isinstance(index, cst.UnaryOperation) else index
    return source.code(index) if index is not None and isinstance(number, cst.Integer) else ""


def _taken_before(source: Source, inner: cst.BaseExpression, taken: cst.Subscript, step: str) -> list[Edit]:
    """The edits that take the step from the input of the layers instead of their output."""
    end = source.outer_span(inner)[1]
    plain = isinstance(inner, cst.Name | cst.Attribute) or source.span(inner) != source.outer_span(inner)
    start = source.outer_span(inner)[0]
    opened = [] if plain else [Edit(start, start, "(")]
    return [
        *opened,
        Edit(end, end, f"[:, {step}]" if plain else f")[:, {step}]"),
        Edit(source.outer_span(taken.value)[1], source.span(taken)[1], ""),
    ]


ONE_STEP_USED = Rewrite(ID, 40, Claim.ROUNDING, find)
