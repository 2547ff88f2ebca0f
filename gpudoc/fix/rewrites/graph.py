"""9 and 12: graphs that stay in memory although no backward will ever use them."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.flow import (
    FILLING,
    HARMLESS,
    backwards,
    feeding_backward,
    handed_to,
    hidden_backward,
    is_plain,
    is_without_grad,
    key,
)
from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import (
    Proposal,
    Rewrite,
    RewriteSite,
    drop_argument,
    measured_lines,
    replace,
    statements,
)
from gpudoc.fix.source import Node, Source
from gpudoc.fix.tree import (
    argument,
    below,
    binding,
    bindings,
    called,
    calls,
    dotted,
    enclosing,
    imported_names,
    is_false,
    is_literal,
    is_true,
    loops_around,
    scope_of,
    uses,
    words,
)

DETACH = "detach-sum"
RETAIN = "retain-graph"
_CHAINS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)


def find_sums(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for `total += loss` and `kept.append(loss)` at the lines that keep a step's memory."""
    lines = [line for file, line in evidence.keeps_at if file == source.path]
    if not lines and (evidence.growth_bytes or 0) > 0:
        lines = measured_lines(source, evidence)
    found: list[Proposal] = []
    for statement in statements(source, lines):
        if not isinstance(statement, cst.SimpleStatementLine) or is_without_grad(source, statement):
            continue
        for part in statement.body:
            kept = _kept(part)
            if kept is not None and not is_plain(kept[1]) and loops_around(source, statement):
                found.append(_detached(source, part, *kept))
    return found


def _kept(part: Node) -> tuple[Node, cst.BaseExpression] | None:
    """The growing variable, and the value that is added to it."""
    if isinstance(part, cst.AugAssign) and isinstance(part.operator, cst.AddAssign):
        return part.target, part.value
    if isinstance(part, cst.Assign) and len(part.targets) == 1 and isinstance(part.value, cst.BinaryOperation):
        target, value = part.targets[0].target, part.value
        same = dotted(target) and dotted(target) == dotted(value.left)
        if same and isinstance(value.operator, cst.Add):
            return target, value.right
    if isinstance(part, cst.Expr) and isinstance(part.value, cst.Call):
        call = part.value
        if called(call) in ("append", "appendleft") and len(call.args) == 1 and isinstance(call.func, cst.Attribute):
            return call.func.value, call.args[0].value
    return None


def _detached(source: Source, part: Node, target: Node, value: cst.BaseExpression) -> Proposal:
    site = RewriteSite(DETACH, Claim.EXACT, source, part)
    name = source.code(target)
    if not isinstance(target, cst.Name | cst.Attribute) or not dotted(target):
        return site.refuse(f"`{name}` is not a plain variable, so it cannot be said where its values go")
    reason = _goes_on(source, target)
    if reason:
        return site.refuse(reason)
    if not isinstance(value, (*_CHAINS, cst.BinaryOperation)):
        return site.refuse(f"`{source.code(value)}` is not one tensor")
    code = source.code(value)
    if isinstance(value, cst.BinaryOperation) and not value.lpar:
        code = f"({code})"
    return site.change([replace(source, value, f"{code}.detach()")])


def _goes_on(source: Source, target: cst.Name | cst.Attribute) -> str:
    """Why the values that a variable collects may be needed with their graph."""
    name = dotted(target)
    if key(source, target) in feeding_backward(source):
        return f"`{name}` goes into a backward later, and needs the graph of every step"
    if "create_graph" in words(source):
        return "a backward of this file makes a graph of gradients, which may go through here"
    if name.partition(".")[0] in imported_names(source):
        return f"`{name}` is another file's too, and what that does with it cannot be seen"
    if looked := sorted({"globals", "locals", "grad_fn", "requires_grad"} & words(source)):
        return f"this file asks for `{looked[0]}`, perhaps of what is kept here"
    if hidden := hidden_backward(source):
        return f"line {hidden} looks up an attribute by its name, which may be `backward`"
    scope = source.module if isinstance(target, cst.Attribute) else scope_of(source, target)
    for one in bindings(scope, name):
        if not _starts_empty(one):
            return f"line {source.line(one)} makes `{name}` of something that is known by another name too"
    for use in uses(source, scope, name):
        taker = handed_to(source, use)
        if taker and taker not in HARMLESS and taker not in FILLING:
            return f"`{name}` is handed to `{taker}`, which may need the graph"
        above = source.parent(use)
        if isinstance(above, cst.Attribute) and above.attr.value in (
            "grad",
            "grad_fn",
            "requires_grad",
            "register_hook",
        ):
            return f"`{name}.{above.attr.value}` is read"
    function = enclosing(source, target, cst.FunctionDef)
    if isinstance(target, cst.Attribute):
        return ""
    returned = [
        one
        for one in below(scope)
        if isinstance(one, cst.Return | cst.Yield) and one.value is not None and uses(source, one, name)
    ]
    if returned and isinstance(function, cst.FunctionDef):
        plain = all(one.value is not None and is_plain(one.value) for one in returned if isinstance(one, cst.Return))
        own_name = function.name.value
        shown = any(called(call) == own_name for call in calls(source.module))
        if not plain and ({own_name, f".{own_name}"} & feeding_backward(source) or not shown):
            return f"`{name}` is returned, and what is done with it cannot be seen here"
    return ""


def _starts_empty(node: Node) -> bool:
    """Whether a statement sets a sum or a list to an empty value, or adds to it."""
    if isinstance(node, cst.AugAssign):
        return True
    if not isinstance(node, cst.Assign | cst.AnnAssign) or node.value is None:
        return False
    value = node.value
    if isinstance(value, cst.BinaryOperation):
        return True
    made = isinstance(value, cst.Call) and called(value) in ("list", "deque", "zeros", "tensor")
    return made or is_literal(value)


def find_retained(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for `backward(retain_graph=True)` at a measured line: it must use the graph only once."""
    kept = [line for file, line in evidence.keeps_at if file == source.path]
    found: list[Proposal] = []
    for statement in statements(source, [*kept, *measured_lines(source, evidence)]):
        for call in calls(statement) if isinstance(statement, cst.SimpleStatementLine) else ():
            arg = argument(call, "retain_graph")
            if called(call) != "backward" or arg is None or is_false(arg.value):
                continue
            site = RewriteSite(RETAIN, Claim.EXACT, source, call)
            reason = _second_pass(source, call, arg)
            found.append(site.refuse(reason) if reason else site.change([drop_argument(source, call, arg)]))
    return found


def _second_pass(source: Source, call: cst.Call, arg: cst.Arg) -> str:
    """Why the graph of a backward may be needed again."""
    if not is_true(arg.value):
        return f"`{source.code(arg.value)}` decides it when the script runs"
    if {"create_graph", "grad_fn", "register_hook", "hessian", "jacobian"} & words(source):
        return "this file works with the graph itself, or with gradients of gradients"
    if hidden := hidden_backward(source):
        return f"line {hidden} looks up an attribute by its name, which may be `backward`"
    others = [one for one in backwards(source.module) if one is not call]
    if others:
        line = source.line(others[0])
        return f"line {line} calls `{called(others[0])}` too, perhaps through the same graph"
    loops = loops_around(source, call)
    root = call.func.value if isinstance(call.func, cst.Attribute) else None
    if loops and isinstance(root, cst.Name):
        if not bindings(loops[0].body, root.value):
            return f"`{root.value}` is made outside of the loop, so each round goes through the same graph"
    elif not isinstance(root, cst.Name):
        return "what it is called on is not a plain variable"
    if isinstance(root, cst.Name):
        for use in uses(source, scope_of(source, call), root.value):
            taker = handed_to(source, use)
            if taker and taker not in HARMLESS and taker not in FILLING:
                return f"`{root.value}` is handed to `{taker}`, which may go through the graph again"
    carried = _carried(source, loops[0]) if loops else ""
    if carried:
        return f"`{carried}` goes from one step into the next, and its graph with it"
    stored = _stored_by_forward(source)
    return f"`{stored}` lives on in the model from one forward to the next, perhaps with its graph" if stored else ""


def _carried(source: Source, loop: cst.For | cst.While) -> str:
    """A variable that one round of a loop passes to the next, perhaps with a graph that a backward uses."""
    for one in below(loop.body):
        if not isinstance(one, cst.Assign | cst.AugAssign) or is_plain(one.value):
            continue
        for name, part in binding(one):
            if key(source, part) not in feeding_backward(source):
                continue
            if isinstance(one, cst.AugAssign) or isinstance(part, cst.Attribute) or _reads_first(source, loop, name):
                return name
    return ""


def _reads_first(source: Source, loop: cst.For | cst.While, name: str) -> bool:
    if any(name == bound for bound, _ in binding(loop)):
        return False
    made = [source.span(one)[0] for one in bindings(loop.body, name)]
    statement_ends = [
        source.span(one)[1] for one in bindings(loop.body, name) if isinstance(one, cst.Assign | cst.AnnAssign)
    ]
    if not made:
        return False
    reads = [
        source.span(use)[0]
        for use in uses(source, loop, name)
        if not any(part is use for above in source.ancestors(use) for _, part in binding(above))
    ]
    first = min(statement_ends, default=max(made))
    return any(read < first for read in reads)


def _stored_by_forward(source: Source) -> str:
    for one in source.nodes:
        if isinstance(one, cst.FunctionDef) and one.name.value == "forward":
            for part in below(one):
                if isinstance(part, cst.Assign | cst.AugAssign) and not is_plain(part.value):
                    for name, _ in binding(part):
                        if name.startswith("self."):
                            return name
    return ""


DETACH_SUM = Rewrite(DETACH, 9, Claim.EXACT, find_sums)
RETAIN_GRAPH = Rewrite(RETAIN, 12, Claim.EXACT, find_retained)
