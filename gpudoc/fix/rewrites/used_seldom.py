"""32: a value that each step computes but only some steps use, such as an accuracy printed every 50 steps."""

from __future__ import annotations

import itertools

import libcst as cst

from gpudoc.fix.flow import is_plain, is_without_grad
from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, measured_lines, statements
from gpudoc.fix.rewrites.vocabulary import CHANGES_FORWARD, DRAWS, LOOKS, PLAIN_CALLS, PURE, PURE_MORE
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import (
    Function,
    argument,
    below,
    binding,
    bindings,
    called,
    calls,
    dotted,
    is_literal,
    leaves,
    local_functions,
    loops_around,
    parameters,
    qualified,
    scope_of,
    uses,
)
from gpudoc.patterns import Pattern

ID = "used-seldom"
_DEPTH = 3
_MORE = (
    cst.Lambda, cst.Await, cst.Yield, cst.NamedExpr, cst.Global, cst.Nonlocal, cst.Try, cst.ClassDef, cst.Del,
    cst.Import, cst.ImportFrom, cst.Raise, cst.While, cst.Assert,
)  # fmt: skip
_BUILT_IN = PLAIN_CALLS | {"dict", "set", "any", "all", "isinstance", "type"}
# functions of torch and NumPy that do more than compute
_ACTS = frozenset({"save", "load", "compile", "savez", "savetxt", "copyto", "put", "place", "putmask", "fill_diagonal"})
# excludes collectives, and functions with the state of a GPU, a generator or a profiler
_COMPUTES = Pattern(r"^(?:torch|numpy)\.(?:(?:linalg|special|fft)\.)?\w+$|^torch\.nn\.functional\.\w+$|^math\.\w+$")
_WRITES = ("out", "inplace")


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for `name = f(...)` at a measured line in a loop, if only the block's next `if` uses it."""
    found: list[Proposal] = []
    for statement in statements(source, measured_lines(source, evidence)):
        names = _names_set(statement)
        if not names or not loops_around(source, statement):
            continue
        chosen = _condition_behind(source, statement)
        if chosen is not None and _is_used_there_alone(source, statement, names, chosen):
            found.append(_moved(RewriteSite(ID, Claim.EXACT, source, statement), names, chosen))
    return found


def _names_set(statement: Node) -> tuple[str, ...]:
    """The names that a statement sets to the result of a call; empty if it does something else."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return ()
    part = statement.body[0]
    if not isinstance(part, cst.Assign) or len(part.targets) != 1 or not any(calls(part.value)):
        return ()
    targets = list(leaves(part.targets[0].target))
    plain = all(isinstance(one, cst.Name) for one in targets)
    return tuple(dotted(one) for one in targets) if plain and not _indexes(part.targets[0].target) else ()


def _indexes(target: Node) -> bool:
    return any(isinstance(one, cst.Subscript) for one in below(target))


def _condition_behind(source: Source, statement: Node) -> cst.If | None:
    """The next `if` of the same block; None if another compound statement comes first."""
    block = source.parent(statement)
    if not isinstance(block, cst.IndentedBlock):
        return None
    first = next((one for one in _behind(block, statement) if not isinstance(one, cst.SimpleStatementLine)), None)
    return first if isinstance(first, cst.If) else None


def _behind(block: cst.IndentedBlock, statement: Node) -> list[cst.BaseStatement]:
    return list(itertools.dropwhile(lambda one: one is not statement, block.body))[1:]


def _is_used_there_alone(source: Source, statement: Node, names: tuple[str, ...], chosen: cst.If) -> bool:
    start, end = source.span(chosen.body)
    own_start, own_end = source.span(statement)
    scope, used = scope_of(source, statement), False
    for name in names:
        for use in uses(source, scope, name):
            at, inner = source.span(use)[0], scope_of(source, use)
            # a function may have its own variable of that name
            if own_start <= at < own_end or (inner is not scope and _is_local(inner, name)):
                continue
            if not start <= at < end:
                return False
            used = True
    return used


def _is_local(function: Node, name: str) -> bool:
    """Whether a function binds a name without declaring it global or nonlocal."""
    given = isinstance(function, cst.FunctionDef) and name in parameters(function)
    shared = any(isinstance(one, cst.Global | cst.Nonlocal) for one in below(function))
    return not shared and (given or bool(bindings(function, name)))


def _moved(site: RewriteSite, names: tuple[str, ...], chosen: cst.If) -> Proposal:
    source, statement = site.source, site.node
    assert isinstance(statement, cst.SimpleStatementLine)
    value = statement.body[0]
    assert isinstance(value, cst.Assign)
    for name in names:
        if name in {dotted(one) for one in below(value.value) if isinstance(one, cst.Name)}:
            return site.refuse(f"`{name}` of one step goes into that of the next")
    if reason := _does_more(source, value.value, depth=0):
        return site.refuse(reason)
    if reason := _between(source, statement, chosen, value.value):
        return site.refuse(reason)
    if not isinstance(chosen.body, cst.IndentedBlock) or chosen.orelse is not None:
        return site.refuse("the condition has another form than a block")
    if is_without_grad(source, statement) != is_without_grad(source, chosen):
        return site.refuse("gradients are off at one of the two places")
    first, last = source.line(statement), source.last_line(statement)
    if any(isinstance(one, cst.SimpleString) and source.line(one) != source.last_line(one) for one in below(statement)):
        return site.refuse("it contains a string of several lines, which a new indentation would change")
    start, end = source.line_start(first), source.line_start(last + 1)
    inner = source.line(chosen.body.body[0])
    step = source.indent(chosen.body.body[0])[len(source.indent(chosen)) :]
    text = "".join(step + source.line_text(n) for n in range(first, last + 1))
    at = source.line_start(inner)
    return site.change([Edit(start, end, ""), Edit(at, at, text)])


def _between(source: Source, statement: Node, chosen: cst.If, value: Node) -> str:
    """Why the lines between a value and its use may not be independent of the value."""
    read = {dotted(one).partition(".")[0] for one in below(value) if isinstance(one, cst.Name | cst.Attribute)}
    if any(True for _ in calls(chosen.test)):
        return "the condition calls a function, which may change something"
    block = source.parent(statement)
    assert isinstance(block, cst.IndentedBlock)
    for one in itertools.takewhile(lambda one: one is not chosen, _behind(block, statement)):
        line = source.line(one)
        if any(bound.partition(".")[0] in read for part in below(one) for bound, _ in binding(part)):
            return f"line {line} changes what it is computed from"
        for call in calls(one):
            # `losses.append(loss.item())` and `running += loss.item()`
            into = call.func.value if isinstance(call.func, cst.Attribute) and called(call) == "append" else None
            if not is_plain(call) and (into is None or dotted(into).partition(".")[0] in read):
                return f"line {line} calls `{source.code(call.func)}` between the two"
    return ""


def _does_more(source: Source, node: Node, *, depth: int, inside: Function | None = None) -> str:
    """Why computing a value may have side effects that other code needs; '' if nothing indicates it."""
    for one in below(node):
        if isinstance(one, _MORE):
            return f"line {source.line(one)} does more than to compute a value"
        if isinstance(one, cst.Assign | cst.AnnAssign | cst.AugAssign) and (reason := _writes(source, one, inside)):
            return reason
        if isinstance(one, cst.Call) and (reason := _acts(source, one, depth, inside)):
            return reason
    return ""


def _writes(source: Source, one: cst.Assign | cst.AnnAssign | cst.AugAssign, inside: Function | None) -> str:
    for target in [two.target for two in one.targets] if isinstance(one, cst.Assign) else [one.target]:
        for part in leaves(target):
            changes = isinstance(one, cst.AugAssign) or _indexes(target)
            if not isinstance(part, cst.Name) or (changes and not _is_own(inside, part.value)):
                return f"line {source.line(one)} changes `{source.code(target)}`, which others may see"
    return ""


def _is_own(inside: Function | None, name: str) -> bool:
    """Whether the function itself makes the value of a name: a constant, a list or a dict."""
    made = [one for one in bindings(inside, name) if isinstance(one, cst.Assign)] if inside is not None else []
    return any(is_literal(one.value) or isinstance(one.value, cst.Dict | cst.List) for one in made) and all(
        is_literal(one.value) or isinstance(one.value, cst.Dict | cst.List) or _indexes(one.targets[0].target)
        for one in made
    )


def _acts(source: Source, call: cst.Call, depth: int, inside: Function | None) -> str:
    name, full = called(call), qualified(source, call.func)
    shown = source.code(call.func)
    if DRAWS.search(name) or ".random." in f"{full}.":
        return f"`{shown}` draws random numbers, so that later draws would differ"
    if full:
        acts = name in _ACTS or name.endswith("_") or name.startswith(("set_", "manual_"))
        acts = acts or any(argument(call, word) is not None for word in _WRITES)
        acts = acts or CHANGES_FORWARD.search(name) is not None
        return f"what `{shown}` does cannot be seen in this file" if acts or not _COMPUTES.search(full) else ""
    if isinstance(call.func, cst.Attribute):
        if name in PURE or name in PURE_MORE or name in LOOKS:
            return ""
        grows = name in ("append", "extend", "add") and _is_own(inside, dotted(call.func.value))
        return "" if grows else f"`{shown}` may change something"
    found = local_functions(source, name)
    if len(found) == 1 and depth < _DEPTH and source.parent(found[0]) is source.module:
        if found[0].asynchronous is not None or any("no_grad" not in source.code(d) for d in found[0].decorators):
            return f"`{name}` is wrapped by something"
        inner = _does_more(source, found[0].body, depth=depth + 1, inside=found[0])
        return f"`{name}`: {inner}" if inner else ""
    if not found and name in _BUILT_IN and not bindings(source.module, name):
        return ""
    return f"`{shown}` may change something, as a model in training does"


USED_SELDOM = Rewrite(ID, 32, Claim.EXACT, find)
