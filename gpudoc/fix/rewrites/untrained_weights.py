"""33: gradients of weights that no optimizer has, for example if only the head of a pretrained model is trained."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.flow import backwards, hidden_backward
from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, insert_line, measured_lines
from gpudoc.fix.source import Source
from gpudoc.fix.tree import (
    argument,
    bindings,
    called,
    calls,
    dotted,
    local_functions,
    loops_around,
    qualified,
    words,
)

ID = "untrained-part"
# functions that may get the model
_LOOKS = frozenset({"print", "len", "id", "save", "deepcopy", "isinstance", "type", "list", "sum"})
# names by which a file itself chooses which weights are trained
_CHOOSES = frozenset({"requires_grad", "requires_grad_"})
# names that read gradients of all weights, or decide later which weights are trained
_READS = {
    "grad": "reads gradients, perhaps those of the part that is not trained",
    "grad_fn": "works with the graph itself",
    "create_graph": "takes gradients of gradients",
    "register_hook": "has hooks on gradients",
    "register_full_backward_hook": "has hooks on gradients",
    "add_param_group": "gives the optimizer more weights later",
    "param_groups": "works with the weights that the optimizer has",
    "clip_grad_norm_": "clips gradients by their norm, perhaps with those of the part that is not trained",
    "clip_grad_value_": "clips gradients, perhaps those of the part that is not trained",
    "get_total_norm": "takes the norm of gradients, perhaps of all",
    "DataParallel": "copies the model to several GPUs",
    "DistributedDataParallel": "wraps the model, which must be frozen before that",
    "FullyShardedDataParallel": "wraps the model, which must be frozen before that",
    "fully_shard": "wraps the model, which must be frozen before that",
}


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """The change or refusal for a file's only optimizer, if it has a part of a model whose backward is measured."""
    lines = set(measured_lines(source, evidence))
    if not any(source.line(one) in lines for one in backwards(source.module)) or _CHOOSES & words(source):
        return []
    made = [call for call in calls(source.module) if qualified(source, call.func).startswith("torch.optim.")]
    made = [call for call in made if "lr_scheduler" not in qualified(source, call.func)]
    found = [(call, *pair) for call in made if (pair := _part_of(source, call)) is not None]
    if not found:
        return []
    call, whole, part = found[0]
    statement = source.parent(source.parent(call) or call)
    site = RewriteSite(ID, Claim.EXACT, source, call)
    if len(made) != 1:
        return [site.refuse(f"{len(made)} optimizers are made in this file, and another one may train the rest")]
    if reason := _why_not(source, call, whole):
        return [site.refuse(reason)]
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return [site.refuse("the optimizer is made in a part of a statement")]
    line, indent = source.line(statement), source.indent(statement)
    text = f"{indent}{whole}.requires_grad_(False)"
    more = f"{indent}{part}.requires_grad_(True)"
    return [
        site.change(
            [insert_line(source, line, f"{text}{source.newline(line)}{more}")],
            f"`{whole}` outside of `{part}` has no gradients any more.",
        )
    ]


def _part_of(source: Source, call: cst.Call) -> tuple[str, str] | None:
    """The model that runs, and its part that is all the optimizer gets; None if the optimizer gets more."""
    given = argument(call, "params", 0)
    if given is None or not isinstance(given.value, cst.Call) or called(given.value) != "parameters":
        return None
    part = dotted(given.value.func).rpartition(".")[0]
    names = part.split(".")
    run = {dotted(one.func) for one in calls(source.module)}
    wholes = [whole for end in range(1, len(names)) if (whole := ".".join(names[:end])) in run]
    return (wholes[0], part) if wholes else None


def _why_not(source: Source, call: cst.Call, whole: str) -> str:
    for word, reason in _READS.items():
        if word in words(source):
            return f"this file {reason}"
    if hidden := hidden_backward(source):
        return f"line {hidden} looks up an attribute by its name, which may be `backward`"
    made = bindings(source.module, whole)
    if len(made) != 1 or not isinstance(made[0], cst.Assign) or not isinstance(made[0].value, cst.Call):
        return f"`{whole}` is not made by one call in this file, and what else is done with it cannot be seen"
    if loops_around(source, call):
        return "the optimizer is made again and again"
    taken = _given_away(source, call, whole)
    return f"`{taken}` is given `{whole}` or weights of it, and may train them" if taken else ""


def _given_away(source: Source, optimizer: cst.Call, whole: str) -> str:
    """The function that gets the model or its weights and is not in this file; '' if there is none."""
    for one in calls(source.module):
        if one is optimizer or called(one) in _LOOKS:
            continue
        weights = any(_is_part(arg.value.func, whole) for arg in one.args if isinstance(arg.value, cst.Call))
        whole_given = any(dotted(arg.value) == whole for arg in one.args)
        if weights or (whole_given and not local_functions(source, called(one))):
            return source.code(one.func)
    return ""


def _is_part(method: cst.BaseExpression, whole: str) -> bool:
    """Whether this is `model.parameters` or `model.body.parameters` of the whole model."""
    name = dotted(method)
    return name.startswith(f"{whole}.") and name.endswith("parameters")


UNTRAINED_PART = Rewrite(ID, 33, Claim.EXACT, find)
