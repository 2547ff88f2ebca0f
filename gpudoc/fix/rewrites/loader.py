"""1 to 4 and 36: the arguments of the DataLoader that the script's steps wait for."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import (
    Proposal,
    Rewrite,
    RewriteSite,
    add_argument,
    measured_lines,
    replace,
    statements,
)
from gpudoc.fix.rewrites.vocabulary import PARTS_OF_DATA
from gpudoc.fix.rewrites.workers import ITERABLES, RANDOM, differs_in_worker, is_unsharded, why_not_in_workers
from gpudoc.fix.source import Edit, Source
from gpudoc.fix.tree import (
    argument,
    bases,
    below,
    binding,
    bindings,
    called,
    calls,
    class_of_call,
    dotted,
    is_false,
    is_literal,
    loops_around,
    qualified,
    scope_of,
    words,
)
from gpudoc.patterns import Pattern

WORKERS, ONE_WORKER, PERSISTENT, PINNED = "loader-workers", "iterable-worker", "persistent-workers", "pin-memory"
NO_WORKERS = "no-workers"
# shares of an epoch: starting workers above the first is worth a change, above the second may exceed the loading itself
_LEAST_STARTING, _MOSTLY_STARTING = 0.05, 0.2
_OF_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout", "worker_init_fn")
_DROPS = Pattern(r"(?i).*dropout|droppath|rrelu")


def loader_call(source: Source, evidence: RunEvidence) -> cst.Call | None:
    """The call that makes the loader or its TrainingArguments; None if this file does not hold it."""
    if evidence.loader_line is None or evidence.loader_line[0] != source.path:
        return None
    line = evidence.loader_line[1]
    found = [
        call
        for call in calls(source.module)
        if source.line(call) <= line <= source.last_line(call)
        and (called(call).endswith("DataLoader") or called(call).endswith("TrainingArguments"))
    ]
    return found[-1] if found else None


def find_workers(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """The change to as many workers as loading needs to keep up with a step, if samples are the same in any process."""
    return _find(source, evidence, WORKERS)


def find_one_worker(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """The change to one worker, for a data set that can only be iterated and gives every worker all of its samples."""
    return _find(source, evidence, ONE_WORKER)


def _find(source: Source, evidence: RunEvidence, rewrite: str) -> list[Proposal]:
    call = loader_call(source, evidence)
    chosen = evidence.num_workers or 0
    if call is None or chosen < 1:
        return []
    owner = data_set(source, call)
    unsharded = owner is not None and is_unsharded(source, owner)
    if unsharded != (rewrite == ONE_WORKER):
        return []
    site = RewriteSite(rewrite, Claim.EXACT, source, call)
    number = 1 if unsharded else chosen
    shares = owner is not None and bool(ITERABLES & set(bases(source, owner)))
    if number > 1 and (shares or {"WebDataset", "streaming", "IterableDataset"} & words(source) - _base_names(owner)):
        return [site.refuse("each worker reads another part of a data set that is iterated, so batches would differ")]
    edit = _write_workers(source, call, number)
    if edit is None:
        return []
    reason = edit if isinstance(edit, str) else why_not_in_workers(source, call, owner)
    if reason or isinstance(edit, str):
        return [site.refuse(reason)]
    more = "One more process reads" if number == 1 else f"{number} more processes read"
    return [site.change([edit], f"{more} the data, each with memory for what it touches of the data set.")]


def _base_names(owner: cst.ClassDef | None) -> set[str]:
    """Names that may stand in the file because of another data set: the loader's is known and is not iterable."""
    return {"IterableDataset"} if owner is not None else set()


def _write_workers(source: Source, call: cst.Call, number: int) -> Edit | str | None:
    keyword = "num_workers" if called(call).endswith("DataLoader") else "dataloader_num_workers"
    arg = argument(call, keyword, 5 if keyword == "num_workers" else None)
    if arg is None:
        if any(one.star for one in call.args):
            return "arguments that are unpacked in the call may name the workers as well"
        return add_argument(source, call, f"{keyword}={number}")
    if isinstance(arg.value, cst.Integer):
        return replace(source, arg.value, str(number)) if arg.value.evaluated_value != number else None
    return f"`{source.code(arg.value)}` decides the number of workers: start the script so that it is {number}"


def data_set(source: Source, call: cst.Call) -> cst.ClassDef | None:
    """The class of this file whose instance the loader gets; None if that cannot be seen."""
    arg = argument(call, "dataset", 0)
    return _class_of_value(source, call, arg.value) if arg is not None else None


def _class_of_value(source: Source, call: cst.Call, value: cst.BaseExpression) -> cst.ClassDef | None:
    if isinstance(value, cst.Call):
        whole = argument(value, "dataset", 0) if qualified(source, value.func) in PARTS_OF_DATA else None
        return class_of_call(source, value) if whole is None else _class_of_value(source, call, whole.value)
    name = dotted(value)
    for scope in (scope_of(source, call), source.module):
        made = [one for one in bindings(scope, name) if isinstance(one, cst.Assign | cst.AnnAssign)]
        values = [_value_of(one, name) for one in made]
        classes = [_class_of_value(source, call, one) for one in values if isinstance(one, cst.Call)]
        if len(made) == 1 and classes and classes[0] is not None:
            return classes[0]
    return None


def _value_of(one: cst.Assign | cst.AnnAssign, name: str) -> cst.BaseExpression | None:
    """The value that a statement sets a name to, also in `train, val = Table(1), Table(2)`."""
    target = one.targets[0].target if isinstance(one, cst.Assign) else one.target
    if not isinstance(target, cst.Tuple) or not isinstance(one.value, cst.Tuple):
        return one.value
    pairs = zip(target.elements, one.value.elements, strict=False)
    return next((value.value for part, value in pairs if dotted(part.value) == name), None)


def find_persistent(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """The change to persistent workers, if starting them takes time and no random number depends on it."""
    call = _starting_call(source, evidence, _LEAST_STARTING)
    if call is None:
        return []
    arg = argument(call, "persistent_workers")
    site = RewriteSite(PERSISTENT, Claim.EXACT, source, call)
    reason = _depends_on_start(source, call)
    if reason:
        return [site.refuse(reason)]
    edit = (
        replace(source, arg.value, "True") if arg is not None else add_argument(source, call, "persistent_workers=True")
    )
    return [site.change([edit], "The workers and their memory stay between epochs.")]


def find_no_workers(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """The change to no workers, if their start takes much of an epoch, they cannot persist, and samples stay equal."""
    call = _starting_call(source, evidence, _MOSTLY_STARTING)
    workers = argument(call, "num_workers", 5) if call is not None else None
    if call is None or workers is None or not (_depends_on_start(source, call) or loops_around(source, call)):
        return []
    site, owner = RewriteSite(NO_WORKERS, Claim.EXACT, source, call), data_set(source, call)
    if owner is None:
        return [site.refuse("the data set is not in this file: whether workers give it other samples cannot be seen")]
    if ITERABLES & set(bases(source, owner)) or "get_worker_info" in words(source):
        return [site.refuse("the data set may give other samples in each worker")]
    if more := next((word for word in _OF_WORKERS if argument(call, word) is not None), ""):
        return [site.refuse(f"`{more}` is there for workers")]
    if reason := why_not_in_workers(source, call, owner):
        return [site.refuse(reason)]
    return [site.change([replace(source, workers.value, "0")], "The main process loads the samples by itself.")]


def _starting_call(source: Source, evidence: RunEvidence, least: float) -> cst.Call | None:
    """The loader whose workers start again in each epoch and take at least `least` of it."""
    call = loader_call(source, evidence)
    if call is None or (evidence.worker_start_share or 0.0) < least or not called(call).endswith("DataLoader"):
        return None
    lives_on, workers = argument(call, "persistent_workers"), argument(call, "num_workers", 5)
    if workers is None or (isinstance(workers.value, cst.Integer) and workers.value.evaluated_value == 0):
        return None
    return None if lives_on is not None and not is_false(lives_on.value) else call


def _depends_on_start(source: Source, call: cst.Call) -> str:
    """Why the training would change if workers started only once."""
    if any(one.star for one in call.args):
        return "arguments that are unpacked in the call may say how samples are drawn"
    if loops_around(source, call):
        return "the loader is made again and again, so its workers would start again all the same"
    owner = data_set(source, call)
    if owner is None:
        return "the data set is not in this file: whether it is changed between epochs cannot be seen"
    if {"set_epoch", "epoch"} & {one.value for one in below(owner) if isinstance(one, cst.Name)}:
        return "the data set is given the epoch, which workers that live on would never see"
    if is_unsharded(source, owner) or ITERABLES & set(bases(source, owner)):
        return "a data set that can only be iterated may go on in a worker where it stopped"
    if reason := differs_in_worker(source, owner, depth=0):
        return reason
    shuffled = argument(call, "shuffle", 2)
    own = argument(call, "generator") is not None
    if argument(call, "batch_sampler", 4) is not None or argument(call, "sampler", 3) is not None:
        return "a sampler gives the order, and whether it draws from torch's own generator cannot be seen"
    if shuffled is not None and not is_false(shuffled.value):
        return "the order is shuffled: torch draws one number less from the same generator when workers live on"
    if not own and (drawn := _drawn_by_steps(source)):
        return f"`{drawn}` draws from torch's generator, from which one number less is drawn when workers live on"
    return ""


def _drawn_by_steps(source: Source) -> str:
    """The name of something that may draw random numbers in the steps: dropout, sampling, a model of another file."""
    for word in sorted(words(source)):
        if _DROPS.match(word) or RANDOM.fullmatch(word):
            return word
    return "" if any(_is_model(source, one) for one in source.nodes) else "a model that is not in this file perhaps"


def _is_model(source: Source, node: cst.CSTNode) -> bool:
    if isinstance(node, cst.ClassDef):
        return any(name.endswith("Module") for name in bases(source, node))
    return isinstance(node, cst.Call) and qualified(source, node.func) in ("torch.nn.Sequential", "torch.nn.Linear")


def find_pinned(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """The change to pinned batches that are copied while the host goes on, if a copy to a GPU takes time."""
    call = loader_call(source, evidence)
    if call is None or not evidence.cuda or not called(call).endswith("DataLoader"):
        return []
    arg = argument(call, "pin_memory", 7)
    if arg is not None and not is_false(arg.value):
        return []
    copies = [
        copy
        for statement in statements(source, measured_lines(source, evidence))
        if isinstance(statement, cst.SimpleStatementLine)
        for copy in calls(statement)
        if _copies(source, copy)
    ]
    if not copies:
        return []
    site = RewriteSite(PINNED, Claim.EXACT, source, call)
    if any(one.star for one in call.args):
        return [site.refuse("arguments that are unpacked in the call may name `pin_memory` as well")]
    if reason := _host_batch_changes(source, copies):
        return [site.refuse(reason)]
    edits = [replace(source, arg.value, "True") if arg is not None else add_argument(source, call, "pin_memory=True")]
    edits += [
        add_argument(source, copy, "non_blocking=True") for copy in copies if argument(copy, "non_blocking") is None
    ]
    return [site.change(edits, "A thread copies each batch into memory that cannot be swapped out.")]


def _copies(source: Source, call: cst.Call) -> bool:
    if called(call) == "cuda":
        return True
    if called(call) != "to" or not call.args:
        return False
    target = call.args[0].value
    return "device" in source.code(target) or (is_literal(target) and "cuda" in source.code(target))


def _host_batch_changes(source: Source, copies: list[cst.Call]) -> str:
    """Why the memory that a copy may still read from could be written again; '' if it is not."""
    for copy in copies:
        if not isinstance(copy.func, cst.Attribute) or not loops_around(source, copy):
            return "the copy stands outside of a loop over batches"
        host = dotted(copy.func.value)
        if not host:
            return f"`{source.code(copy.func.value)}` is not a plain variable, so who else writes to it cannot be seen"
        loop = loops_around(source, copy)[0]
        if not any(bound == host for bound, _ in binding(loop)):
            return f"`{host}` is not what the loop takes from the loader"
        for one in below(loop.body):
            writes = isinstance(one, cst.AugAssign) and dotted(one.target) == host
            if isinstance(one, cst.Call) and isinstance(one.func, cst.Attribute):
                writes = writes or (one.func.attr.value.endswith("_") and dotted(one.func.value) == host)
            if isinstance(one, cst.Assign):
                writes = writes or any(
                    isinstance(target.target, cst.Subscript) and dotted(target.target.value) == host
                    for target in one.targets
                )
            if writes:
                return f"line {source.line(one)} writes to `{host}`, perhaps while it is still being copied"
    return ""


LOADER_WORKERS = Rewrite(WORKERS, 1, Claim.EXACT, find_workers)
ITERABLE_WORKER = Rewrite(ONE_WORKER, 2, Claim.EXACT, find_one_worker)
PERSISTENT_WORKERS = Rewrite(PERSISTENT, 3, Claim.EXACT, find_persistent)
WITHOUT_WORKERS = Rewrite(NO_WORKERS, 36, Claim.EXACT, find_no_workers)
PIN_MEMORY = Rewrite(PINNED, 4, Claim.EXACT, find_pinned)
