"""15, 22 and 29: one setting: a fused optimizer, the threads that were left out, CUDA's allocator."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.model import Candidate, Claim, Refusal, RunEvidence
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, add_argument, measured_lines, statements
from gpudoc.fix.source import Edit, Source
from gpudoc.fix.tree import argument, bindings, called, calls, dotted, qualified, words

FUSED, THREADS, ALLOCATOR = "fused-optimizer", "few-threads", "expandable-segments"
_LEAST = 0.10
_FUSED = frozenset({"torch.optim.SGD", "torch.optim.Adam", "torch.optim.AdamW"})
_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"


def find_fused(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for the optimizer whose `step()` takes a tenth of a step or more."""
    found: list[Proposal] = []
    for statement in statements(source, measured_lines(source, evidence, least=_LEAST)):
        for call in calls(statement) if isinstance(statement, cst.SimpleStatementLine) else ():
            if called(call) == "step" and isinstance(call.func, cst.Attribute):
                # scaler.step(optimizer) too
                first = dotted(call.args[0].value) if call.args else ""
                found += _fused(source, first or dotted(call.func.value))
    return found


def _fused(source: Source, name: str) -> list[Proposal]:
    made = [
        one.value
        for one in bindings(source.module, name)
        if isinstance(one, cst.Assign | cst.AnnAssign) and isinstance(one.value, cst.Call)
    ]
    plain = [call for call in made if isinstance(call, cst.Call) and qualified(source, call.func) in _FUSED]
    if not plain:
        return []
    site = RewriteSite(FUSED, Claim.ROUNDING, source, plain[0])
    if len(bindings(source.module, name)) != 1:
        return [site.refuse(f"`{name}` is made in several places, and it cannot be said which one steps")]
    call = plain[0]
    for word in ("fused", "foreach", "capturable", "differentiable"):
        if argument(call, word) is not None:
            return []
    if any(arg.star for arg in call.args):
        return [site.refuse("arguments that are unpacked in the call may choose another way of stepping")]
    for word, reason in (
        ("sparse", "an embedding may give sparse gradients, which a fused optimizer cannot take"),
        ("float64", "parameters may be in double precision or complex"),
        ("complex64", "parameters may be complex"),
        ("register_step_pre_hook", "hooks of the optimizer may count on the plain way of stepping"),
    ):
        if word in words(source):
            return [site.refuse(reason)]
    return [site.change([add_argument(source, call, "fused=True")], "The optimizer adds in another order.")]


def find_threads(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for `torch.set_num_threads(1)` in a script that leaves cores idle."""
    if evidence.threads is None:
        return []
    found: list[Proposal] = []
    for call in calls(source.module):
        if qualified(source, call.func) != "torch.set_num_threads" or len(call.args) != 1:
            continue
        site = RewriteSite(THREADS, Claim.ROUNDING, source, call)
        given = call.args[0].value
        if not isinstance(given, cst.Integer):
            return [site.refuse(f"`{source.code(given)}` decides how many threads there are")]
        if given.evaluated_value != evidence.threads:
            continue
        statement = source.parent(source.parent(call) or call)
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            return [site.refuse("it is only a part of a statement")]
        block = source.parent(statement)
        if not isinstance(block, cst.Module):
            return [site.refuse("it is set in a function, perhaps of a worker process, where it may be right")]
        if {"DataParallel", "DistributedDataParallel", "init_process_group", "fork", "Pool", "spawn"} & words(source):
            return [site.refuse("several processes of this script share the cores")]
        line = source.line(statement)
        edit = Edit(source.line_start(line), source.line_start(source.last_line(statement) + 1), "")
        found.append(site.change([edit], "torch computes with as many threads as there are cores."))
    return found


def find_allocator(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """The change or refusal for fragmented CUDA memory that ran out; it sets a variable and leaves the source."""
    died = evidence.died_at
    if not evidence.fragmented or died is None or died.file != source.path:
        return []
    if _VARIABLE in source.text or "PYTORCH_ALLOC_CONF" in source.text:
        reason = f"the script sets {_VARIABLE} itself, which would be overwritten"
        return [Refusal(ALLOCATOR, source.path, died.line, reason)]
    text, value = source.text, ((_VARIABLE, "expandable_segments:True"),)
    return [Candidate(ALLOCATOR, source.path, died.line, Claim.EXACT, text, text, (), value)]


FUSED_OPTIMIZER = Rewrite(FUSED, 15, Claim.ROUNDING, find_fused)
FEW_THREADS = Rewrite(THREADS, 22, Claim.ROUNDING, find_threads)
EXPANDABLE_SEGMENTS = Rewrite(ALLOCATOR, 29, Claim.EXACT, find_allocator)
