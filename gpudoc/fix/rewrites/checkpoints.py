"""19: a checkpoint in each step, saved by the loop itself or by a function of the file that it calls."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import (
    Proposal,
    Rewrite,
    RewriteSite,
    indented,
    insert_line,
    measured_lines,
    statements,
    step_of_indent,
)
from gpudoc.fix.rewrites.seldom import (
    DOES_MORE,
    DRAWS,
    MOVES,
    last_step,
    may_end_early,
    only_call,
    round_up,
    step_name,
    wrapped,
)
from gpudoc.fix.source import Node, Source
from gpudoc.fix.tree import (
    Function,
    below,
    binding,
    called,
    calls,
    dotted,
    function_of,
    local_functions,
    loops_around,
    qualified,
)

ID = "checkpoint-each-step"
# saving may take this share of a run
_SAVING = 0.02
_DEPTH = 3
_SAYS = frozenset({"print", "info", "debug", "warning", "item", "log", "float", "int", "len", "format", "add_scalar"})


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for `torch.save` in each step of a loop, or for a call of a saving function of this file."""
    found: list[Proposal] = []
    asked: list[Node] = []
    for statement in statements(source, measured_lines(source, evidence)):
        call = only_call(statement)
        if call is None or not loops_around(source, statement):
            continue
        saver = _saver(source, call)
        if saver is None and qualified(source, call.func) != "torch.save":
            continue
        asked.append(statement)
        site = RewriteSite(ID, Claim.BEHAVIOUR, source, statement)
        shares = [hot.share for hot in evidence.lines_in(source.path) if source.statement_at(hot.line) is statement]
        share = max(shares, default=0.5)
        # saving takes `share` of a step: this interval reduces it to _SAVING
        every = round_up(share / max(1 - share, 0.01) / _SAVING)
        found.append(_save_seldom(site, every) if saver is None else _call_seldom(site, every, saver))
    return found or _saved_elsewhere(source, evidence)


def _saved_elsewhere(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Refusals for a save at a measured line whose loop is not in this file, as in a callback."""
    found: list[Proposal] = []
    for statement in statements(source, measured_lines(source, evidence)):
        call = only_call(statement)
        function = function_of(source, statement)
        if call is None or function is None or qualified(source, call.func) != "torch.save":
            continue
        if loops_around(source, statement) or any(isinstance(one, cst.If) for one in source.ancestors(statement)):
            continue
        site = RewriteSite(ID, Claim.BEHAVIOUR, source, statement)
        name = function.name.value
        found.append(
            site.refuse(f"`{name}` saves each time that it is called, from a place that does not count the steps")
        )
    return found


def _saver(source: Source, call: cst.Call, depth: int = _DEPTH) -> Function | None:
    """The one function of this file that a call runs, if it saves a checkpoint, else None."""
    own = isinstance(call.func, cst.Name) or dotted(call.func).count(".") == 1
    functions = local_functions(source, called(call)) if own and depth else []
    if len(functions) != 1:
        return None
    (function,) = functions
    inner = [one for one in calls(function) if one is not call]
    saves = any(qualified(source, one.func) == "torch.save" for one in inner)
    return function if saves or any(_saver(source, one, depth - 1) is not None for one in inner) else None


def _save_seldom(site: RewriteSite, every: int) -> Proposal:
    source, statement = site.source, site.node
    loop = loops_around(source, statement)[0]
    step = step_name(loop)
    last = last_step(source, loop, step)
    if not step or not last:
        return site.refuse("the loop does not count its steps in a way that tells which one is the last")
    if reason := may_end_early(source, loop) or _not_alone(source, statement, loop):
        return site.refuse(reason)
    return _at_the_last(site, every, step, last)


def _at_the_last(site: RewriteSite, every: int, step: str, last: str) -> Proposal:
    condition = f"({step} + 1) % {every} == 0 or {step} + 1 == {last}"
    return wrapped(
        site, condition, f"A checkpoint is written every {every} steps and after the last one, not in each step."
    )


def _not_alone(source: Source, statement: Node, loop: cst.For | cst.While) -> str:
    """Why other code may need each checkpoint, or why it is already written seldom."""
    if source.parent(statement) is not loop.body:
        return "it is saved under a condition already"
    if any(qualified(source, one.func) == "torch.load" or called(one) == "load_state_dict" for one in calls(loop)):
        return "the loop reads checkpoints again"
    for one in calls(loop.body):
        if dotted(one.func).partition(".")[0] in ("os", "shutil", "subprocess") or called(one) in MOVES:
            return f"line {source.line(one)} does something with files in each step, perhaps with this one"
    return ""


def _call_seldom(site: RewriteSite, every: int, saver: Function) -> Proposal:
    """Call `self.save()` every few steps, and once after the loop if its last step is not known in advance."""
    source, statement = site.source, site.node
    loop = loops_around(source, statement)[0]
    if reason := _not_alone(source, statement, loop) or _does_more(source, saver):
        return site.refuse(reason)
    for one in calls(loop.body):
        for function in local_functions(source, called(one)):
            if any(qualified(source, inner.func) == "torch.load" for inner in calls(function)):
                return site.refuse(f"`{called(one)}` reads checkpoints again")
    step = step_name(loop)
    last = last_step(source, loop, step)
    if step and last and not may_end_early(source, loop):
        return _at_the_last(site, every, step, last)
    count = _count(source, loop)
    if not count:
        return site.refuse("the loop does not count its steps, so it cannot be said which of them to save")
    if reason := may_end_early(source, loop, after=statement) or _later(source, statement, loop):
        return site.refuse(reason)
    call = only_call(statement)
    bound = {name for one in (loop, *below(loop.body)) for name, _ in binding(one)}
    given = {dotted(one) for arg in (call.args if call else ()) for one in below(arg.value)} & bound
    if given:
        return site.refuse(f"`{sorted(given)[0]}` of the last step would be needed behind the loop")
    moved = indented(source, statement, step_of_indent(source))
    if moved is None or loop.orelse is not None:
        return site.refuse("the loop or the statement cannot be written in another way here")
    head = insert_line(source, source.line(statement), f"{source.indent(statement)}if {count} % {every} == 0:")
    text = source.code(call) if call is not None else ""
    behind = insert_line(source, source.last_line(loop) + 1, source.indent(loop) + text)
    told = f"A checkpoint is written every {every} steps and behind the loop, not in each step."
    return site.change([head, *moved, behind], told)


def _count(source: Source, loop: cst.For | cst.While) -> str:
    """An expression that counts the rounds of a loop, for use with `%`; '' if there is none."""
    if step := step_name(loop):
        return f"({step} + 1)"
    if isinstance(loop, cst.For) and isinstance(loop.iter, cst.Call) and isinstance(loop.target, cst.Tuple):
        first = dotted(loop.target.elements[0].value) if loop.target.elements else ""
        if dotted(loop.iter.func) == "enumerate" and len(loop.iter.args) == 2 and first and first != "_":
            start = loop.iter.args[1].value
            changed = any(name == first for one in below(loop.body) for name, _ in binding(one))
            return first if isinstance(start, cst.Integer) and not changed else ""
    counted = [
        one
        for child in loop.body.body
        if isinstance(child, cst.SimpleStatementLine)
        for one in child.body
        if isinstance(one, cst.AugAssign) and isinstance(one.operator, cst.AddAssign) and source.code(one.value) == "1"
    ]
    names = [dotted(one.target) for one in counted]
    for name in names:
        if name and len([1 for one in below(loop.body) for bound, _ in binding(one) if bound == name]) == 1:
            return name
    return ""


def _does_more(source: Source, saver: Function) -> str:
    """Why a function that saves may also do something that each step needs."""
    for one in below(saver):
        if isinstance(one, cst.Assign | cst.AugAssign | cst.AnnAssign) and any("." in name for name, _ in binding(one)):
            return f"line {source.line(one)} changes something each time that it saves"
        if isinstance(one, cst.Global | cst.Nonlocal):
            return f"line {source.line(one)} changes something each time that it saves"
        if isinstance(one, cst.Call) and (called(one) in DOES_MORE or called(one) in DRAWS):
            return f"line {source.line(one)} does more than saving"
        if isinstance(one, cst.Call) and qualified(source, one.func) == "torch.load":
            return f"line {source.line(one)} reads checkpoints again"
    if any(isinstance(one, cst.Return) and one.value is not None for one in below(saver)):
        return "what the function that saves returns may say whether it saved"
    return ""


def _later(source: Source, statement: Node, loop: cst.For | cst.While) -> str:
    """Why a save after the loop would include other work: what the step does between its save and its end."""
    body = list(loop.body.body)
    for later in body[body.index(statement) + 1 :]:
        for one in below(later):
            if isinstance(one, cst.Call) and called(one) not in _SAYS:
                return f"line {source.line(one)} runs after the save, and a save behind the loop would hold its work"
            if isinstance(one, cst.Assign | cst.AugAssign | cst.AnnAssign | cst.NamedExpr | cst.Del):
                return (
                    f"line {source.line(one)} changes something after the save, which a save behind the loop would hold"
                )
    return ""


CHECKPOINT_EACH_STEP = Rewrite(ID, 19, Claim.BEHAVIOUR, find)
