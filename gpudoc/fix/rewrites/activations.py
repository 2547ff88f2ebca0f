"""28: activation checkpointing: blocks of a deep stack are computed again in the backward instead of kept."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, insert_line, replace, torch_name
from gpudoc.fix.rewrites.vocabulary import STATISTICS, words_like
from gpudoc.fix.source import Node, Source
from gpudoc.fix.tree import (
    Function,
    bases,
    below,
    binding,
    bindings,
    called,
    calls,
    class_of,
    class_of_call,
    dotted,
    function_of,
    imported_names,
    loops_around,
    methods,
    qualified,
    words,
)

ID = "activation-checkpointing"
_TWICE = ("script", "compile", "make_graphed_callables", "checkpoint", "checkpoint_sequential", "numpy")
_HOOKS = ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook", "register_hook")
_DOES = frozenset({"append", "print", "register_buffer", "extend", "update", "write"})


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """The change or refusal for the calls of the blocks in `self.blocks`, if memory ran out in this file."""
    died = evidence.died_at
    if died is None or died.file != source.path:
        return []
    found: list[Proposal] = []
    # memory may run out in the loss or the optimizer: each deep stack of this file could save memory
    for call in calls(source.module):
        stack = _stack_of(source, call)
        if stack is not None:
            found.append(_checkpointed(source, call, *stack))
    return found if len(found) == 1 else []


def _stack_of(source: Source, call: cst.Call) -> tuple[str, bool] | None:
    """`self.blocks` if a call runs one of its blocks in a loop (True) or all of them as a Sequential (False)."""
    function = function_of(source, call)
    if function is None or function.name.value == "__init__" or not call.args or _module_of(source, function) is None:
        return None
    loops = loops_around(source, call)
    if isinstance(call.func, cst.Attribute) and dotted(call.func).startswith("self."):
        name = dotted(call.func)
        return (name, False) if _is_row(source, function, name) else None
    for loop in loops[:1]:
        if isinstance(loop, cst.For) and (name := _looped(loop, call.func)):
            return name, True
    return None


def _module_of(source: Source, function: Function) -> cst.ClassDef | None:
    owner = class_of(source, function)
    return owner if owner is not None and any(name.endswith("Module") for name in bases(source, owner)) else None


def _looped(loop: cst.For, func: Node) -> str:
    """`self.blocks` for `for block in self.blocks`, also with enumerate or an index; '' for another loop."""
    over, target = loop.iter, loop.target
    if isinstance(over, cst.Call) and dotted(over.func) == "enumerate" and isinstance(target, cst.Tuple):
        pair = [one.value for one in target.elements]
        if over.args and len(pair) == 2 and dotted(over.args[0].value).startswith("self."):
            return dotted(over.args[0].value) if dotted(pair[1]) and dotted(func) == dotted(pair[1]) else ""
    if dotted(over).startswith("self.") and dotted(target) and dotted(func) == dotted(target):
        return dotted(over)
    is_counted = (
        isinstance(loop.iter, cst.Call) and dotted(loop.iter.func) == "range" and isinstance(loop.target, cst.Name)
    )
    if (
        is_counted
        and isinstance(func, cst.Subscript)
        and dotted(func.value).startswith("self.")
        and len(func.slice) == 1
    ):
        index = func.slice[0].slice
        if isinstance(index, cst.Index) and dotted(index.value) == dotted(loop.target):
            return dotted(func.value)
    return ""


def _is_row(source: Source, function: Function, name: str) -> bool:
    """Whether `self.blocks` is a Sequential of equal blocks: `nn.Sequential(*[Block() for _ in range(n)])`."""
    made = _made(source, function, name)
    return (
        made is not None
        and qualified(source, made.func) == "torch.nn.Sequential"
        and len(made.args) == 1
        and made.args[0].star == "*"
        and isinstance(made.args[0].value, cst.ListComp | cst.GeneratorExp)
    )


def _made(source: Source, function: Function, name: str) -> cst.Call | None:
    owner = class_of(source, function)
    found = bindings(owner, name) if owner is not None else []
    if len(found) != 1 or not isinstance(found[0], cst.Assign) or not isinstance(found[0].value, cst.Call):
        return None
    return found[0].value


def _checkpointed(source: Source, call: cst.Call, name: str, looped: bool) -> Proposal:
    site = RewriteSite(ID, Claim.EXACT, source, call)
    if reason := _not_twice(source, call, name):
        return site.refuse(reason)
    if any(arg.star for arg in call.args):
        return site.refuse("arguments are unpacked in the call of the block")
    torch = torch_name(source)
    first = next(_imports(source), None)
    if first is None or (torch and torch != "torch"):
        return site.refuse("the file does not import torch by its name")
    given = source.text[source.outer_span(call.args[0].value)[0] : source.outer_span(call.args[-1].value)[1]]
    if call.args[0].keyword is not None:
        return site.refuse("the block is called with keywords alone")
    front = "torch.utils.checkpoint." if torch else ""
    kind = "checkpoint" if looped else "checkpoint_sequential"
    block = source.code(call.func)
    if looped:
        text = f"{front}{kind}({block}, {given}, use_reentrant=False)"
    elif len(call.args) == 1:
        text = f"{front}{kind}({block}, len({block}), {given}, use_reentrant=False)"
    else:
        return site.refuse("the row of blocks is called with more than one value")
    imported = "import torch.utils.checkpoint" if torch else f"from torch.utils.checkpoint import {kind}"
    return site.change(
        [insert_line(source, source.last_line(first) + 1, imported), replace(source, call, text)],
        "Each block is computed a second time in the backward, so steps take longer.",
    )


def _imports(source: Source) -> Iterator[Node]:
    """The torch imports at the top of the file; `import torch` comes first."""
    found = [
        one
        for one in source.module.body
        if isinstance(one, cst.SimpleStatementLine) and any(_is_torch(part) for part in one.body)
    ]
    yield from sorted(found, key=lambda one: not any(_is_plain(part) for part in one.body))


def _is_plain(part: Node) -> bool:
    return isinstance(part, cst.Import) and any(
        dotted(one.name) == "torch" and one.asname is None for one in part.names
    )


def _is_torch(part: Node) -> bool:
    if isinstance(part, cst.ImportFrom):
        return not part.relative and dotted(part.module).partition(".")[0] == "torch"
    return isinstance(part, cst.Import) and any(dotted(one.name).partition(".")[0] == "torch" for one in part.names)


def _not_twice(source: Source, call: cst.Call, name: str) -> str:
    """Why a block may behave differently when it is computed a second time."""
    if found := words_like(source, STATISTICS):
        return f"`{found}` keeps statistics of batches, which would count each batch twice"
    for word in _TWICE:
        if word in words(source):
            return f"`{word}` in this file may not go together with a block that is computed twice"
    if hook := next((word for word in _HOOKS if word in words(source)), ""):
        return f"`{hook}` in this file may see a block twice"
    if "random" in imported_names(source).values():
        return "Python's random numbers are not set back when a block is computed a second time"
    function = function_of(source, call)
    made = _made(source, function, name) if function is not None else None
    if made is None:
        return f"it cannot be seen here what `{name}` is made of"
    for one in calls(made):
        known = class_of_call(source, one) is not None or qualified(source, one.func).startswith("torch.nn.")
        if not known and called(one) != "range":
            return f"`{called(one) or name}` is not in this file, and may do something else the second time"
    return _side_effects(source, function)


def _side_effects(source: Source, caller: Function | None) -> str:
    for owner in source.nodes:
        if not isinstance(owner, cst.ClassDef) or not any(name.endswith("Module") for name in bases(source, owner)):
            continue
        for method, function in methods(owner).items():
            if method != "__init__" and (reason := _effect(source, function, within=function is not caller)):
                return reason
    if "inplace" in words(source):
        return "`inplace` in this file may change what a block got, which is needed a second time"
    return ""


def _effect(source: Source, function: Function, *, within: bool) -> str:
    for one in below(function):
        line = source.line(one)
        if isinstance(one, cst.Assign | cst.AugAssign) and any(n.startswith("self.") for n, _ in binding(one)):
            return f"line {line} changes the model in a forward, which would happen twice"
        if isinstance(one, cst.Global | cst.Nonlocal):
            return f"line {line} changes what others see in a forward, which would happen twice"
        if isinstance(one, cst.Call):
            name = called(one)
            changes = name.endswith("_") and not name.endswith("__") and isinstance(one.func, cst.Attribute)
            if name in _DOES or changes:
                return f"line {line} does something in a forward that would happen twice"
        target = one.target if isinstance(one, cst.AugAssign | cst.AssignTarget) else None
        written = isinstance(one, cst.AugAssign) or isinstance(target, cst.Subscript)
        if within and target is not None and written:
            return f"line {line} may change what a block got, which is needed a second time"
    return ""


ACTIVATION_CHECKPOINTING = Rewrite(ID, 28, Claim.EXACT, find)
