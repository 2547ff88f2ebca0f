"""35: a sample that a data set makes again in each epoch although it stays the same."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, import_edits, insert_line
from gpudoc.fix.rewrites.loader import data_set, loader_call
from gpudoc.fix.rewrites.sample_aliases import goes_to_default_collate
from gpudoc.fix.rewrites.sample_beginning import beginning_of, keep_beginning, reached
from gpudoc.fix.rewrites.workers import ITERABLES, changed_meanwhile, why_not_in_workers
from gpudoc.fix.rewrites.written import written_later
from gpudoc.fix.source import Node, Source
from gpudoc.fix.tree import (
    Function,
    argument,
    bases,
    below,
    binding,
    called,
    calls,
    dotted,
    is_literal,
    is_true,
    local_class,
    methods,
    words,
)

ID = "sample-each-epoch"
# the least share of a step that reading samples must take, so that keeping them may pay
_LEAST_SHARE = 0.1
_BASES = frozenset({"Dataset", "object", "Generic"})
# samplers that give an index as a plain number
_SAMPLERS = frozenset({"RandomSampler", "SequentialSampler", "DistributedSampler", "WeightedRandomSampler"})


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """The change or refusal for `__getitem__` of the data set that steps wait for: it repeats its work each epoch."""
    call = loader_call(source, evidence)
    owner = data_set(source, call) if call is not None else None
    reads = methods(owner).get("__getitem__") if owner is not None else None
    if call is None or owner is None or reads is None or reads.decorators or ITERABLES & set(bases(source, owner)):
        return []
    if _share(source, evidence, reached(source, owner, [reads])) < _LEAST_SHARE:
        return []
    site = RewriteSite(ID, Claim.EXACT, source, reads)
    imported = import_edits(source, "functools")
    if imported is None:
        return [site.refuse("the file imports nothing")]
    if reason := _why_nothing_is_kept(source, owner, reads):
        return [site.refuse(reason)]
    if reason := _why_not_whole(source, call, owner, reads):
        kept = [] if changed_meanwhile(source, call, owner) else beginning_of(source, owner, reads)
        pays = _share(source, evidence, reached(source, owner, kept)) >= _LEAST_SHARE
        beginning = keep_beginning(site, reads, kept) if pays else None
        return [beginning or site.refuse(reason)]
    decorator = insert_line(source, source.line(reads), source.indent(reads) + "@functools.cache")
    return [site.change([decorator, *imported], "Each sample stays in memory once it was made.")]


def _share(source: Source, evidence: RunEvidence, parts: Sequence[Node]) -> float:
    """The share of a step, 0 to 1, that the lines of these parts of this file take; the parts may call each other."""
    spans = [(source.line(one), source.last_line(one)) for one in parts]
    lines = evidence.lines_in(source.path, least=0.0)
    return sum(hot.share for hot in lines if any(first <= hot.line <= last for first, last in spans))


def _why_nothing_is_kept(source: Source, owner: cst.ClassDef, reads: Function) -> str:
    """Why even the beginning of a sample may differ the next time; '' if nothing indicates it."""
    strange = [one for one in bases(source, owner) if one not in _BASES and local_class(source, one) is None]
    if strange:
        return f"`{strange[0]}` of another file may give another sample the next time"
    if owner.decorators or {"__eq__", "__hash__"} & set(methods(owner)):
        return f"how two of `{owner.name.value}` compare is not Python's own, and a cache asks for it"
    if len(reads.params.params) != 2 or reads.params.star_kwarg or isinstance(reads.params.star_arg, cst.Param):
        return "`__getitem__` takes more than an index"
    for one in calls(source.module):
        if called(one) == "DataLoader" and (reason := _loads_otherwise(source, one)):
            return reason
    if reason := _set_after_init(source, owner):
        return reason
    return written_later(source, owner.name.value, by_torch=True)


def _why_not_whole(source: Source, call: cst.Call, owner: cst.ClassDef, reads: Function) -> str:
    """Why a whole sample may differ the next time, or be changed after it was returned; '' if nothing indicates it."""
    if why_not_in_workers(source, call, owner) or {"time", "datetime"} & _names(reads):
        return "the sample of an index may be another one in the next epoch"
    if not goes_to_default_collate(source, owner):
        return "a sample goes to more than torch's own collate function, and may be changed there"
    return ""


def _loads_otherwise(source: Source, call: cst.Call) -> str:
    if any(one.star for one in call.args):
        return "arguments that are unpacked in the call may say how samples are loaded"
    workers = argument(call, "num_workers", 5)
    lives_on = argument(call, "persistent_workers")
    in_workers = workers is not None and not (is_literal(workers.value) and source.code(workers.value) == "0")
    if in_workers and (lives_on is None or not is_true(lives_on.value)):
        return f"line {source.line(call)} starts new workers in each epoch, which keep nothing of the last one"
    sampler = argument(call, "sampler", 3)
    if sampler is None or dotted(sampler.value) == "None":
        return ""
    known = isinstance(sampler.value, cst.Call) and called(sampler.value) in _SAMPLERS
    return "" if known else f"the sampler in line {source.line(call)} may give more than plain numbers"


def _set_after_init(source: Source, owner: cst.ClassDef) -> str:
    """The line that sets an attribute of the data set after it was made; '' if there is none."""
    initial, inside = methods(owner).get("__init__"), set(below(owner))
    at_first = set(below(initial)) if initial is not None else set()
    own = {name[5:] for one in inside for name, _ in binding(one) if name.startswith("self.")}
    for one in source.nodes:
        for name, _ in binding(one) if one not in at_first else ():
            _, dot, attribute = name.rpartition(".")
            # `self.x` of another class is not the same attribute
            if dot and attribute in own and (one in inside or not name.startswith("self.")):
                return f"line {source.line(one)} sets `{name}`, and a sample may be another one after it"
    return "the script sets attributes by their names" if "setattr" in words(source) else ""


def _names(node: Node) -> set[str]:
    return {one.value for one in below(node) if isinstance(one, cst.Name)}


SAMPLE_EACH_EPOCH = Rewrite(ID, 35, Claim.EXACT, find)
