"""16: a tensor of constants that each step makes again."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from gpudoc.fix.model import Candidate, Claim, RunEvidence
from gpudoc.fix.rewrites.arguments import find_of_arguments
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, drop_argument, insert_line, replace
from gpudoc.fix.rewrites.dependence import (
    NamedValue,
    changed_later,
    init_edit,
    is_set_once,
    measured_values,
    names_read,
    not_constant,
)
from gpudoc.fix.rewrites.number_tables import ID, find_built
from gpudoc.fix.rewrites.vocabulary import DRAWS, FACTORIES, PURE
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import (
    Function,
    argument,
    bases,
    below,
    called,
    calls,
    class_of,
    dotted,
    function_of,
    is_false,
    loops_around,
    methods,
    qualified,
    scope_of,
    words,
)

# names that handle the buffers of a model in a special way
_BUFFER_WORDS = ("half", "bfloat16", "double", "buffers", "named_buffers", "DataParallel", "script", "AveragedModel")


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for `mask = torch.triu(torch.ones(n, n))` at a measured line of a loop or a forward."""
    found: list[Proposal] = []
    for made in measured_values(source, evidence):
        if not _is_factory(source, made.value):
            continue
        function, loops = function_of(source, made.statement), loops_around(source, made.statement)
        site = RewriteSite(ID, Claim.EXACT, source, made.statement)
        if _is_computed(source, made.value):
            continue
        if reason := _default_changes(source):
            found.append(site.refuse(reason))
            continue
        if function is not None and function.name.value == "forward" and not loops:
            found.append(_into_buffer(site, made, function))
        elif loops:
            found.append(_before_loop(site, made, loops))
    # a value that depends on an argument is kept for that argument if it is always the same object
    given = find_of_arguments(source, evidence)
    kept = [_function_at(source, one) for one in given if isinstance(one, Candidate)]
    found = [one for one in found if isinstance(one, Candidate) or _function_at(source, one) not in kept]
    return [*found, *given] or find_built(source, evidence)


def _function_at(source: Source, proposal: Proposal) -> Function | None:
    statement = source.statement_at(proposal.line)
    return None if statement is None else function_of(source, statement)


def _is_factory(source: Source, value: cst.BaseExpression) -> bool:
    return any(
        (called(call) in FACTORIES or DRAWS.search(called(call)))
        and qualified(source, call.func).split(".")[0] in ("torch", "numpy")
        for call in calls(value)
    )


def _is_computed(source: Source, value: cst.BaseExpression) -> bool:
    """Whether a model or a function computes the value, so that it is clearly not a constant."""
    outer = value.expression if isinstance(value, cst.UnaryOperation) else value
    while isinstance(outer, cst.Call) and isinstance(outer.func, cst.Attribute) and called(outer) in PURE:
        outer = outer.func.value
    return isinstance(outer, cst.Call) and not qualified(source, outer.func) and called(outer) not in PURE


def _impure(value: Node) -> str:
    """Why a value may differ the next time, apart from the names that it reads."""
    for call in calls(value):
        name = called(call)
        if DRAWS.search(name):
            return f"`{name}` draws random numbers, or gives memory as it happens to be"
        if name not in PURE:
            return f"what `{name or 'a function'}` gives may be another thing each time"
        grad = argument(call, "requires_grad")
        if grad is not None and not is_false(grad.value):
            return "it is a tensor that is trained"
    if any(isinstance(one, cst.Lambda | cst.Await | cst.Yield | cst.NamedExpr) for one in below(value)):
        return "it is more than a plain value"
    return ""


def _default_changes(source: Source) -> str:
    for call in calls(source.module):
        if called(call).startswith("set_default_") and (loops_around(source, call) or function_of(source, call)):
            return f"line {source.line(call)} changes what torch makes tensors of"
    return ""


def _before_loop(site: RewriteSite, made: NamedValue, loops: list[cst.For | cst.While]) -> Proposal:
    source, statement, loop = site.source, made.statement, loops[-1]
    if reason := _impure(made.value):
        return site.refuse(reason)
    for name in names_read(source, made.value):
        if reason := not_constant(source, statement, name):
            return site.refuse(reason)
    if reason := changed_later(source, scope_of(source, statement), made):
        return site.refuse(reason)
    if any(not isinstance(one, cst.For | cst.While | cst.IndentedBlock) for one in _between(source, statement, loop)):
        return site.refuse("only some of the steps make it, and in the others its name may stand for something else")
    if len(loops[0].body.body) == 1:
        return site.refuse("the loop would be empty without it")
    line = source.line(statement)
    if line != source.last_line(statement):
        return site.refuse("it stands on several lines")
    moved = insert_line(source, source.line(loop), source.indent(loop) + source.line_text(line).strip())
    return site.change([moved, Edit(source.line_start(line), source.line_start(line + 1), "")])


def _between(source: Source, node: Node, outer: Node) -> Iterator[Node]:
    for above in source.ancestors(node):
        if above is outer:
            return
        yield above


def _into_buffer(site: RewriteSite, made: NamedValue, function: Function) -> Proposal:
    source = site.source
    text, moves = _without_device(source, made.value)
    if reason := _impure(made.value):
        return site.refuse(reason)
    for name in names_read(source, made.value):
        given = moves and name.endswith(".device")
        if not given and not (name.startswith("self.") and is_set_once(source, made.statement, name)):
            return site.refuse(f"it depends on `{name}`, which may be another value in the next step")
    if reason := changed_later(source, function, made):
        return site.refuse(reason)
    if source.parent(made.statement) is not function.body:
        return site.refuse("only some of the steps make it")
    for word in _BUFFER_WORDS:
        if word in words(source):
            return site.refuse(f"`{word}` in this file treats the buffers of a model in its own way")
    if not moves and {"cuda", "device"} & words(source):
        return site.refuse("it is made and used on the CPU, and a buffer would move with the model")
    owner = class_of(source, function)
    initial = methods(owner).get("__init__") if owner is not None else None
    if owner is None or initial is None or not any(name.endswith("Module") for name in bases(source, owner)):
        return site.refuse("the model has no `__init__` in this file that could make it once")
    attr = f"_{made.name}"
    if attr in words(source):
        return site.refuse(f"the name `{attr}` is taken")
    edit = init_edit(source, initial, [f'self.register_buffer("{attr}", {text}, persistent=False)'])
    if edit is None:
        return site.refuse("`__init__` may end before its last line")
    return site.change([edit, replace(source, made.value, f"self.{attr}")])


def _without_device(source: Source, value: cst.BaseExpression) -> tuple[str, bool]:
    """The text of a value without its `.to(x.device)` or `device=x.device`, and whether it had one of them."""
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value == "to":
        only = value.args[0].value if len(value.args) == 1 else None
        if dotted(only).endswith(".device"):
            return source.code(value.func.value), True
    given = [(call, arg) for call in calls(value) if (arg := argument(call, "device")) is not None]
    if len(given) == 1 and dotted(given[0][1].value).endswith(".device"):
        edit = drop_argument(source, *given[0])
        start, end = source.outer_span(value)
        return source.text[start : edit.start] + source.text[edit.end : end], True
    return source.code(value), False


CONSTANT_PER_STEP = Rewrite(ID, 16, Claim.EXACT, find)
