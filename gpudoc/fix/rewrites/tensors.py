"""7 and 21: tensors that take a detour, through Python lists or through the CPU."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, add_argument, measured_lines, replace, statements
from gpudoc.fix.rewrites.collate import ID as LISTS
from gpudoc.fix.rewrites.collate import find_arrays, find_nested
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import argument, below, called, calls, dotted, imported_names, is_literal, qualified

ON_CPU = "tensor-on-cpu"
_SAME_ANYWHERE = frozenset({"torch.zeros", "torch.ones", "torch.eye", "torch.full", "torch.arange"})
_RANDOM = frozenset({"torch.rand", "torch.randn", "torch.randint", "torch.randperm", "torch.normal", "torch.bernoulli"})


def find_lists(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for `torch.tensor([x.tolist() for x in batch])` at a measured line."""
    found: list[Proposal] = []
    for statement in statements(source, measured_lines(source, evidence)):
        for call in calls(statement) if isinstance(statement, cst.SimpleStatementLine) else ():
            if qualified(source, call.func) == "torch.tensor" and call.args and _through_list(call.args[0].value):
                found.append(_stacked(source, call))
    return found or find_arrays(source, evidence) or find_nested(source, evidence)


def _through_list(value: Node) -> bool:
    return isinstance(value, cst.ListComp) and isinstance(value.elt, cst.Call) and called(value.elt) == "tolist"


def _stacked(source: Source, call: cst.Call) -> Proposal:
    site = RewriteSite(LISTS, Claim.EXACT, source, call)
    listed = call.args[0].value
    assert isinstance(listed, cst.ListComp)
    assert isinstance(listed.elt, cst.Call)
    if not isinstance(listed.elt.func, cst.Attribute) or listed.elt.args:
        return site.refuse("the code does not show that the value made into a list is one tensor")
    if len(call.args) > 1:
        return site.refuse("the new tensor is given a type or a device, and the old ones may have another")
    tensor = listed.elt.func.value
    if any(called(one) in ("numpy", "array", "asarray") for one in calls(tensor)):
        return site.refuse("the values come from NumPy, which has different default types")
    if any(isinstance(one, cst.Subscript) and _is_slice(one) for one in below(tensor)):
        return site.refuse("the pieces may have different lengths")
    torch = source.code(call.func).rpartition(".")[0]
    if not torch:
        return site.refuse("the file does not import torch by a name that a new line could use")
    inner = source.code(tensor)
    if "numpy" in imported_names(source).values():
        # works for an array as well as for a tensor
        inner = f"{torch}.as_tensor({inner})"
    comp = source.text[source.span(listed.elt)[1] : source.span(listed)[1]]
    return site.change([replace(source, call, f"{torch}.stack([{inner}{comp})")])


def _is_slice(node: cst.Subscript) -> bool:
    return any(isinstance(one.slice, cst.Slice) for one in node.slice)


def find_on_cpu(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for `torch.zeros(n).to(device)` at a measured line of a script that computes on a GPU."""
    if not evidence.cuda:
        return []
    found: list[Proposal] = []
    for statement in statements(source, measured_lines(source, evidence)):
        for call in calls(statement) if isinstance(statement, cst.SimpleStatementLine) else ():
            inner = call.func.value if isinstance(call.func, cst.Attribute) else None
            if called(call) not in ("to", "cuda") or not isinstance(inner, cst.Call):
                continue
            name = qualified(source, inner.func)
            if name in _SAME_ANYWHERE | _RANDOM:
                found.append(_made_there(source, call, inner, name))
    return found


def _made_there(source: Source, call: cst.Call, inner: cst.Call, name: str) -> Proposal:
    site = RewriteSite(ON_CPU, Claim.EXACT, source, call)
    if name in _RANDOM:
        return site.refuse(f"`{name}` draws from the CPU's generator, and the GPU's gives other numbers")
    if any(argument(inner, word) is not None for word in ("device", "out", "requires_grad", "pin_memory")):
        return site.refuse("the call says already where or how the tensor is made")
    if name == "torch.arange" and any(isinstance(one, cst.Float) for one in below(inner)):
        return site.refuse("steps that are not whole are rounded in another way on the GPU")
    if any(one.star for one in (*inner.args, *call.args)):
        return site.refuse("arguments are unpacked in the call")
    device = _device(source, call)
    if not device:
        return site.refuse(f"`{source.code(call)[-40:]}` does not plainly name a device")
    added = add_argument(source, inner, f"device={device}")
    tail = Edit(source.outer_span(inner)[1], source.outer_span(call)[1], "")
    return site.change([added, tail])


def _device(source: Source, call: cst.Call) -> str:
    given = [arg for arg in call.args if arg.keyword is None or arg.keyword.value == "device"]
    others = [arg for arg in call.args if arg not in given and dotted(arg.keyword) != "non_blocking"]
    if others or len(given) > 1:
        return ""
    if called(call) == "cuda":
        return '"cuda"' if not given else ""
    if not given:
        return ""
    value = given[0].value
    named = dotted(value).rpartition(".")[2].endswith("device")
    text = is_literal(value) and source.code(value).strip("'\"").startswith("cuda")
    return source.code(value) if named or text else ""


COLLATE_LISTS = Rewrite(LISTS, 7, Claim.EXACT, find_lists)
TENSOR_ON_CPU = Rewrite(ON_CPU, 21, Claim.EXACT, find_on_cpu)
