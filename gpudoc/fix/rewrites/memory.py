"""27: a batch that goes through the model in chunks, one after the other."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.flow import is_plain
from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import (
    Proposal,
    Rewrite,
    RewriteSite,
    step_of_indent,
)
from gpudoc.fix.rewrites.vocabulary import STATISTICS, words_like
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import (
    bindings,
    binds,
    called,
    calls,
    dotted,
    enclosing,
    loops_around,
    model_is_shown,
    qualified,
    scope_of,
    uses,
    words,
)
from gpudoc.patterns import Pattern

CHUNKS = "batch-in-chunks"
_NUM_CHUNKS = 4
_CHANCE = Pattern(r"(?i)dropout|droppath|drop_path|stochastic_?depth|^rand|^rrelu|gumbel|bernoulli|multinomial|rsample")
_IN_BATCH = Pattern(
    r"(?i)contrastive|info_?nce|nt_?xent|triplet|clip_?loss|in_?batch|negatives|similarity|barlow|vicreg|ctc"
)
_REDUCES = frozenset({"mean", "std", "var", "sum", "max", "min", "amax", "amin", "norm", "softmax", "cumsum", "sort"})
_MEANS = frozenset(
    {"MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCEWithLogitsLoss", "BCELoss", "CrossEntropyLoss"}
    | {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "cross_entropy"}
)


def find_chunks(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Forward, loss and backward of a batch that ran out of memory, in four chunks, weighted by their length."""
    died = evidence.died_at
    if died is None or died.file != source.path:
        return []
    found: list[Proposal] = []
    for call in calls(source.module):
        if called(call) == "backward" and not call.args and isinstance(call.func, cst.Attribute):
            triple = _forward_loss_backward(source, call)
            if triple is not None:
                found.append(_chunked(source, *triple))
    return found if len(found) == 1 else []


def _forward_loss_backward(source: Source, backward: cst.Call) -> tuple[cst.Assign, cst.Assign, Node] | None:
    """`out = model(x)`, `loss = criterion(out, y)` and `loss.backward()`, if they are three consecutive lines."""
    third = source.parent(source.parent(backward) or backward)
    block = source.parent(third) if third is not None else None
    if not isinstance(third, cst.SimpleStatementLine) or not isinstance(block, cst.IndentedBlock):
        return None
    index = list(block.body).index(third)
    if index < 2 or not loops_around(source, third):
        return None
    parts = [
        one.body[0] if isinstance(one, cst.SimpleStatementLine) and len(one.body) == 1 else None
        for one in block.body[index - 2 : index]
    ]
    first, second = parts
    if not isinstance(first, cst.Assign) or not isinstance(second, cst.Assign):
        return None
    if not isinstance(first.value, cst.Call) or not isinstance(second.value, cst.Call):
        return None
    if len(first.value.args) != 1 or len(second.value.args) != 2 or len(first.targets) + len(second.targets) != 2:
        return None
    out, loss = dotted(first.targets[0].target), dotted(second.targets[0].target)
    root = backward.func.value if isinstance(backward.func, cst.Attribute) else None
    given = [dotted(arg.value) for arg in second.value.args if arg.keyword is None]
    fits = out and loss and dotted(root) == loss and len(given) == 2 and given[0] == out and given[1]
    return (first, second, third) if fits and dotted(first.value.args[0].value) else None


def _chunked(source: Source, first: cst.Assign, second: cst.Assign, third: Node) -> Proposal:
    site = RewriteSite(CHUNKS, Claim.ROUNDING, source, first)
    forward, criterion = first.value, second.value
    assert isinstance(forward, cst.Call)
    assert isinstance(criterion, cst.Call)
    x, out = dotted(forward.args[0].value), dotted(first.targets[0].target)
    y, loss = dotted(criterion.args[1].value), dotted(second.targets[0].target)
    if reason := _whole_batch(source, forward, criterion) or _used_after(source, third, out, loss):
        return site.refuse(reason)
    if "." in x or "." in y or {f"{x}_part", f"{y}_part", f"{loss}_part"} & words(source):
        return site.refuse("the batch is not in plain variables, or the names for its parts are taken")
    indent, step, ending = source.indent(first), step_of_indent(source), source.newline(source.line(first))
    model, measure = source.code(forward.func), source.code(criterion.func)
    lines = [
        f"{loss} = 0.0",
        f"for {x}_part, {y}_part in zip({x}.chunk({_NUM_CHUNKS}), {y}.chunk({_NUM_CHUNKS})):",
        f"{step}{loss}_part = {measure}({model}({x}_part), {y}_part) * (len({x}_part) / len({x}))",
        f"{step}{loss}_part.backward()",
        f"{step}{loss} = {loss} + {loss}_part.detach()",
    ]
    edit = Edit(source.span(first)[0], source.span(third)[1], (ending + indent).join(lines))
    return site.change([edit], f"The batch goes through the model in {_NUM_CHUNKS} chunks, one after the other.")


def _whole_batch(source: Source, forward: cst.Call, criterion: cst.Call) -> str:
    """Why the parts of a batch may give other gradients than the whole batch."""
    for pattern, reason in (
        (STATISTICS, "takes statistics of the whole batch"),
        (_CHANCE, "draws other random numbers for a chunk than for a whole batch"),
        (_IN_BATCH, "sounds as if samples of a batch are compared with each other"),
    ):
        if found := words_like(source, pattern):
            return f"`{found}` {reason}"
    if found := _over_batch(source):
        return found
    name = dotted(forward.func)
    if not model_is_shown(source, name):
        return f"`{name}` is not in this file, and may take statistics of the whole batch"
    loss = criterion
    if called(criterion) not in _MEANS:
        chosen = [one for one in bindings(source.module, dotted(criterion.func)) if isinstance(one, cst.Assign)]
        if len(chosen) != 1 or not isinstance(chosen[0].value, cst.Call) or called(chosen[0].value) not in _MEANS:
            return "it cannot be seen here that the loss is a mean over samples"
        loss = chosen[0].value
        if loss.args:
            return "the loss has settings, and may not be a plain mean over samples"
    if not qualified(source, loss.func).startswith("torch.nn."):
        return "it cannot be seen here that the loss is a mean over samples"
    if "ignore_index" in words(source) or "mask" in words(source):
        return "samples that are masked would need another weight"
    return ""


def _over_batch(source: Source) -> str:
    """The line where a forward of this file may compute over the samples of a batch; '' if there is none."""
    for function in source.nodes:
        if not isinstance(function, cst.FunctionDef) or function.name.value != "forward":
            continue
        for call in calls(function):
            dims = [source.code(arg.value) for arg in call.args if arg.keyword is None or arg.keyword.value == "dim"]
            if called(call) in _REDUCES and (not dims or "0" in dims):
                return f"line {source.line(call)} computes over all samples of a batch"
    return ""


def _used_after(source: Source, third: Node, out: str, loss: str) -> str:
    scope, end = scope_of(source, third), source.span(third)[1]
    for use in uses(source, scope, out):
        if source.span(use)[0] >= end and not binds(source, use):
            return f"line {source.line(use)} uses `{out}` of the whole batch"
    for use in uses(source, scope, loss):
        if source.span(use)[0] < end or binds(source, use):
            continue
        above = source.parent(source.parent(use) or use)
        kept = enclosing(source, use, cst.Call)
        plain = isinstance(above, cst.Call) and is_plain(above)
        if not plain and not (isinstance(kept, cst.Call) and is_plain(kept)):
            return f"line {source.line(use)} uses `{loss}` with its graph, perhaps"
    return ""


BATCH_IN_CHUNKS = Rewrite(CHUNKS, 27, Claim.ROUNDING, find_chunks)
