"""13: gradients are filled with zeros instead of dropped."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.model import Claim, Evidence
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, drop_argument, measured_lines, statements
from gpudoc.fix.source import Source
from gpudoc.fix.tree import argument, bases, below, called, calls, is_false, is_true, words

ID = "zero-fill"
_LEAST = 0.03
# what needs gradients that stay where they are, or reads them while there are none
_NEEDS_TENSORS = {
    "CUDAGraph": "a CUDA graph replays on the same gradient tensors",
    "make_graphed_callables": "a CUDA graph replays on the same gradient tensors",
    "gradient_as_bucket_view": "gradients are views into DDP's buckets",
    "capturable": "the optimizer is captured in a CUDA graph",
    "register_hook": "a hook on gradients may count on tensors",
    "SparseAdam": "the optimizer is for sparse gradients",
    "sparse": "an embedding may give sparse gradients",
}


def find(source: Source, evidence: Evidence) -> list[Proposal]:
    """`zero_grad(set_to_none=False)` at a measured line."""
    found: list[Proposal] = []
    for statement in statements(source, measured_lines(source, evidence, least=_LEAST)):
        for call in calls(statement) if isinstance(statement, cst.SimpleStatementLine) else ():
            if called(call) != "zero_grad":
                continue
            arg = argument(call, "set_to_none", 0)
            if arg is None or is_true(arg.value):
                continue
            site = RewriteSite(ID, Claim.EXACT, source, call)
            reason = _why_not(source, arg)
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


def _partial_use(source: Source) -> str:
    """Where a model of this file may leave parameters without a gradient in some steps."""
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
