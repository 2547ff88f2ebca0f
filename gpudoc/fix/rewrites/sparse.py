"""38: gradients of a whole table although a step only uses a few rows."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, add_argument, replace
from gpudoc.fix.source import Edit, Source
from gpudoc.fix.tree import argument, called, calls, is_false, is_literal, qualified, words

ID = "sparse-gradient"
# the least share of a step in the lines that fill, compute and apply gradients
_LEAST_SHARE = 0.3
_EMBEDDINGS = frozenset({"torch.nn.Embedding", "torch.nn.EmbeddingBag"})
_UPDATES = frozenset({"backward", "step", "zero_grad"})
# optimizers that only change rows with a gradient, if all of these settings are 0
_BY_ROWS = {
    "torch.optim.SGD": ("momentum", "dampening", "weight_decay", "nesterov", "fused", "foreach", "maximize"),
    "torch.optim.Adagrad": ("lr_decay", "weight_decay", "fused", "foreach", "maximize"),
}
# names that read or change gradients as whole tables, or keep them together
_NEED_TABLES = frozenset(
    {"clip_grad_norm_", "clip_grad_value_", "grad", "GradScaler", "autocast", "compile", "DistributedDataParallel"}
    | {"FullyShardedDataParallel", "max_norm", "scale_grad_by_freq", "swa_utils"}
)


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """The change or refusal for `nn.Embedding(n, d)` if gradients take long and rows without one are never updated."""
    tables = [call for call in calls(source.module) if qualified(source, call.func) in _EMBEDDINGS]
    tables = [call for call in tables if _is_dense(call)]
    if not tables or _share(source, evidence) < _LEAST_SHARE:
        return []
    optimizers = [call for call in calls(source.module) if qualified(source, call.func).startswith("torch.optim.")]
    stepping = [call for call in optimizers if "lr_scheduler" not in qualified(source, call.func)]
    if not stepping or not all(_is_by_rows(source, call) for call in stepping):
        return []
    site = RewriteSite(ID, Claim.ROUNDING, source, tables[0])
    taken = _NEED_TABLES & words(source)
    # a method with that name belongs to the file itself
    if "compile" in taken and any(
        isinstance(one, cst.FunctionDef) and one.name.value == "compile" for one in source.nodes
    ):
        taken = taken - {"compile"}
    if taken:
        return [site.refuse(f"`{min(taken)}` in this file may need gradients of whole tables")]
    edits = [_made_sparse(source, call) for call in tables]
    return [site.change(edits, "Gradients of a row that several samples use add up in another order.")]


def _is_dense(call: cst.Call) -> bool:
    given = argument(call, "sparse")
    return not any(one.star for one in call.args) and (given is None or is_false(given.value))


def _share(source: Source, evidence: RunEvidence) -> float:
    """The share of a step in this file's lines that fill, compute or apply gradients, 0 to 1."""
    lines = {source.line(call) for call in calls(source.module) if called(call) in _UPDATES}
    return sum(hot.share for hot in evidence.lines_in(source.path, least=0.0) if hot.line in lines)


def _is_by_rows(source: Source, call: cst.Call) -> bool:
    """Whether an optimizer only changes rows that have a gradient."""
    settings = _BY_ROWS.get(qualified(source, call.func))
    # only the parameters and the learning rate may be positional arguments
    if settings is None or any(one.star for one in call.args) or sum(one.keyword is None for one in call.args) > 2:
        return False
    given = [arg for word in settings if (arg := argument(call, word)) is not None]
    return all(is_literal(arg.value) and source.code(arg.value) in ("0", "0.0", "False", "None") for arg in given)


def _made_sparse(source: Source, call: cst.Call) -> Edit:
    given = argument(call, "sparse")
    return add_argument(source, call, "sparse=True") if given is None else replace(source, given.value, "True")


SPARSE_GRADIENT = Rewrite(ID, 38, Claim.ROUNDING, find)
