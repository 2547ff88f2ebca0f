"""13: gradients are filled with zeros instead of dropped."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.flow import backwards
from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, drop_argument, measured_lines, statements
from gpudoc.fix.source import Source
from gpudoc.fix.tree import (
    argument,
    bases,
    below,
    bindings,
    called,
    calls,
    dotted,
    is_false,
    is_true,
    loops_around,
    model_is_shown,
    words,
)

ID = "zero-fill"
_LEAST = 0.03
# names that need gradients to stay in place, or that read them while there are none
_NEEDS_TENSORS = {
    "CUDAGraph": "a CUDA graph replays on the same gradient tensors",
    "make_graphed_callables": "a CUDA graph replays on the same gradient tensors",
    "gradient_as_bucket_view": "gradients are views into DDP's buckets",
    "capturable": "the optimizer is captured in a CUDA graph",
    "register_hook": "a hook on gradients may count on tensors",
    "SparseAdam": "the optimizer is for sparse gradients",
    "sparse": "an embedding may give sparse gradients",
}


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for `zero_grad(set_to_none=False)` at a measured line."""
    found: list[Proposal] = []
    for statement in statements(source, measured_lines(source, evidence, least=_LEAST)):
        for call in calls(statement) if isinstance(statement, cst.SimpleStatementLine) else ():
            if called(call) != "zero_grad":
                continue
            arg = argument(call, "set_to_none", 0)
            if arg is None or is_true(arg.value):
                continue
            site = RewriteSite(ID, Claim.EXACT, source, call)
            reason = _why_not(source, arg) or _model_is_hidden(source, call)
            found.append(site.refuse(reason) if reason else site.change([drop_argument(source, call, arg)]))
    return found


def _why_not(source: Source, arg: cst.Arg) -> str:
    if not is_false(arg.value):
        return f"`{source.code(arg.value)}` decides it when the script runs"
    for node in source.nodes:
        if isinstance(node, cst.Attribute) and node.attr.value == "grad" and source.code(node) != "torch.autograd.grad":
            return f"line {source.line(node)} reads `{source.code(node)}`, which would be None where it is zero now"
    for word, reason in _NEEDS_TENSORS.items():
        if word in words(source):
            return reason
    for node in source.nodes:
        if isinstance(node, cst.Assign) and any(
            isinstance(one.target, cst.Attribute) and one.target.attr.value == "requires_grad" for one in node.targets
        ):
            return f"line {source.line(node)} switches gradients of parameters on or off during the run"
    return _partial_use(source)


def _model_is_hidden(source: Source, call: cst.Call) -> str:
    """Why this file does not show that each step gives all parameters a gradient."""
    name = dotted(call.func).rpartition(".")[0]
    made = [one for one in bindings(source.module, name) if isinstance(one, cst.Assign)]
    model = name
    if len(made) == 1 and isinstance(made[0].value, cst.Call) and made[0].value.args:
        given = made[0].value.args[0].value
        if isinstance(given, cst.Call) and called(given) == "parameters":
            model = dotted(given.func).rpartition(".")[0]
        else:
            return "the optimizer is given more than the parameters of one model, and some may get no gradient"
    if not model_is_shown(source, model):
        return f"`{model}` is not made in this file, and may leave a parameter without a gradient in some step"
    runs = [one for one in calls(source.module) if dotted(one.func) == model]
    loops = loops_around(source, call)
    always = [one for one in runs if loops and not _under_condition(source, one, loops[0])]
    if not always:
        return f"it cannot be seen that `{model}` runs in each step"
    return _steps_without_backward(source, loops[0])


def _steps_without_backward(source: Source, loop: cst.CSTNode) -> str:
    """The line where an optimizer may step although no backward ran since the gradients were dropped."""
    inside = set(below(loop))
    runs = [one for one in backwards(loop) if not _under_condition(source, one, loop)]
    first = min((source.span(one)[0] for one in runs), default=None)
    if first is None:
        return "it cannot be seen that a backward runs in each step"
    for one in calls(source.module):
        steps = called(one) == "step" and "sched" not in source.code(one.func).lower()
        if steps and (one not in inside or source.span(one)[0] < first):
            return f"line {source.line(one)} may step while there are no gradients"
    return ""


def _under_condition(source: Source, node: cst.CSTNode, loop: cst.CSTNode) -> bool:
    for above in source.ancestors(node):
        if above is loop:
            return False
        if isinstance(above, cst.If | cst.IfExp | cst.Try | cst.BooleanOperation):
            return True
    return True


def _partial_use(source: Source) -> str:
    """The line where a model of this file may leave parameters without a gradient in some steps."""
    for owner in source.nodes:
        if not isinstance(owner, cst.ClassDef) or "Module" not in " ".join(bases(source, owner)):
            continue
        for node in below(owner):
            if isinstance(node, cst.FunctionDef) and node.name.value == "forward":
                for one in below(node):
                    if isinstance(one, cst.If | cst.IfExp | cst.While | cst.Continue | cst.Break):
                        return (
                            f"`{owner.name.value}.forward` decides at line {source.line(one)} what it uses: a "
                            "parameter without a gradient is skipped by the optimizer, one with zeros is not"
                        )
    return ""


ZERO_FILL = Rewrite(ID, 13, Claim.EXACT, find)
