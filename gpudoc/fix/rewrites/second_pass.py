"""23: the same model runs twice on the same batch in a step, once only for a number to look at."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.flow import backwards, feeding_backward, key
from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, measured_lines, replace, statements
from gpudoc.fix.rewrites.dependence import changes_in_place, root
from gpudoc.fix.rewrites.vocabulary import CHANGES_FORWARD, DRAWS
from gpudoc.fix.source import Node, Source
from gpudoc.fix.tree import (
    bases,
    below,
    binding,
    called,
    calls,
    dotted,
    enclosing,
    local_functions,
    methods,
    model_is_shown,
    qualified,
    scope_of,
    uses,
    words,
)

ID = "double-forward"
_CHANGES_MODEL = frozenset(
    {"step", "train", "eval", "load_state_dict", "requires_grad_", "to", "half", "apply", "update"}
)


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for a call at a measured line that repeats an earlier call of the same block."""
    found: list[Proposal] = []
    for statement in statements(source, measured_lines(source, evidence)):
        if not isinstance(statement, cst.SimpleStatementLine):
            continue
        for call in calls(statement):
            if len(call.args) == 1 and dotted(call.func) and dotted(call.args[0].value):
                first = _first_time(source, statement, call)
                if first is not None:
                    found.append(_reused(source, statement, call, first))
    return found


def _first_time(source: Source, statement: Node, call: cst.Call) -> cst.Assign | None:
    """The earlier `out = model(x)` of the same block, or of the block around a `with`."""
    around = statement
    block = source.parent(around)
    while isinstance(block, cst.IndentedBlock) and _only_drops_gradients(source.parent(block)):
        around = source.parent(block) or around
        block = source.parent(around)
    if not isinstance(block, cst.IndentedBlock):
        return None
    for one in block.body:
        if one is around:
            break
        part = one.body[0] if isinstance(one, cst.SimpleStatementLine) and len(one.body) == 1 else None
        same = isinstance(part, cst.Assign) and source.code(part.value) == source.code(call)
        if isinstance(part, cst.Assign) and same and isinstance(part.targets[0].target, cst.Name):
            return part
    return None


def _only_drops_gradients(node: Node | None) -> bool:
    return isinstance(node, cst.With) and all(
        isinstance(one.item, cst.Call) and called(one.item) in ("no_grad", "inference_mode") for one in node.items
    )


def _reused(source: Source, statement: Node, call: cst.Call, first: cst.Assign) -> Proposal:
    site = RewriteSite(ID, Claim.EXACT, source, call)
    out = dotted(first.targets[0].target)
    if reason := _differs(source, call):
        return site.refuse(reason)
    start, end = source.span(first)[1], source.span(call)[0]
    scope = enclosing(source, first, cst.IndentedBlock)
    for one in below(scope) if scope is not None else ():
        if not isinstance(one, cst.BaseSmallStatement | cst.Call | cst.Name) or not start <= source.span(one)[0] < end:
            continue
        if isinstance(one, cst.Call) and (called(one) in _CHANGES_MODEL or called(one).endswith("_")):
            return site.refuse(f"line {source.line(one)} may change the model or the batch between the two calls")
        if isinstance(one, cst.Name) and one.value == dotted(call.func).partition(".")[0]:
            above = source.parent(one)
            if not (isinstance(above, cst.Attribute) and above.attr.value == "zero_grad"):
                return site.refuse(f"line {source.line(one)} may change the model or the batch between the two calls")
        both = (out, dotted(call.args[0].value))
        if isinstance(one, cst.Assign) and root(one.value) in both:
            return site.refuse(
                f"line {source.line(one)} gives the batch or the output another name, which may be changed"
            )
        if isinstance(one, cst.Call) and any(root(arg.value) in both for arg in one.args) and _may_write(source, one):
            return site.refuse(f"line {source.line(one)} may change the model or the batch between the two calls")
        if any(name in (*both, dotted(call.func)) for name, _ in binding(one)):
            return site.refuse(f"line {source.line(one)} sets one of the names between the two calls")
    off = any(
        isinstance(above, cst.With) and any("no_grad" in source.code(item.item) for item in above.items)
        for above in source.ancestors(call)
    )
    targets = {key(source, part) for one in below(statement) for _, part in binding(one)}
    names = {name for one in below(statement) for name, _ in binding(one)}
    whole = scope_of(source, statement)
    for name in names:
        for use in uses(source, whole, name):
            above = source.parent(use)
            method = above.attr.value if isinstance(above, cst.Attribute) and above.value is use else ""
            if isinstance(above, cst.AugAssign | cst.Subscript) or (method.endswith("_") and method[-2:] != "__"):
                return site.refuse(f"line {source.line(use)} changes `{name}`, which would change `{out}` too")
    goes_back = bool(targets & feeding_backward(source)) or bool(backwards(statement))
    if goes_back and not off:
        return site.refuse("both results go into a backward, and one graph would sum the gradients in another order")
    return site.change([replace(source, call, f"{out}.detach()")])


def _may_write(source: Source, call: cst.Call) -> bool:
    """Whether a call changes something in place in a function of this file, or may do so in another file."""
    first = qualified(source, call.func).partition(".")[0]
    if first:
        return first not in ("torch", "numpy", "math")
    return any(changes_in_place(one) for function in local_functions(source, called(call)) for one in below(function))


def _differs(source: Source, call: cst.Call) -> str:
    """Why a model may return something else the second time."""
    name = dotted(call.func)
    for word in sorted(words(source)):
        if CHANGES_FORWARD.search(word):
            return f"`{word}` in this file: the second call may give something else than the first, or change the model"
    if not model_is_shown(source, name):
        return f"`{name}` is not made in this file, and the second call may give something else than the first"
    for owner in source.nodes:
        if isinstance(owner, cst.ClassDef) and any(base.endswith("Module") for base in bases(source, owner)):
            for method, function in methods(owner).items():
                for one in below(function) if method != "__init__" else ():
                    if isinstance(one, cst.Call) and DRAWS.search(called(one)):
                        return f"line {source.line(one)} draws random numbers in a forward"
                    if any(bound.startswith("self.") for bound, _ in binding(one)):
                        return f"line {source.line(one)} changes the model in a forward"
    return ""


DOUBLE_FORWARD = Rewrite(ID, 23, Claim.EXACT, find)
