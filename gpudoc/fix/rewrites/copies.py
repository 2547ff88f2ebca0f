"""30: a copy of all weights in each step although only the copy of the best or the last step is used."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import (
    Proposal,
    Rewrite,
    RewriteSite,
    insert_line,
    measured_lines,
    statements,
    step_of_indent,
)
from gpudoc.fix.rewrites.seldom import last_step, may_end_early, step_name
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import (
    below,
    binding,
    bindings,
    binds,
    called,
    calls,
    dotted,
    loops_around,
    qualified,
    scope_of,
    uses,
)

ID = "copy-each-step"
# functions that certainly change no weights, buffers or optimizers
_READS = frozenset(
    {"item", "float", "int", "len", "min", "max", "abs", "print", "isnan", "isfinite", "isinf", "format"}
)
_READS |= frozenset({"detach", "cpu", "append", "info", "debug", "write", "set_postfix", "set_description", "tolist"})
_COPYING = frozenset({"deepcopy", "state_dict", "clone", "detach", "cpu", "items", "parameters", "named_parameters"})
_LEAVES = (cst.Break, cst.Continue, cst.Return, cst.Raise)


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for `copied = copy.deepcopy(model.state_dict())` in each step."""
    found: list[Proposal] = []
    for statement in statements(source, measured_lines(source, evidence)):
        if not isinstance(statement, cst.SimpleStatementLine) or not loops_around(source, statement):
            continue
        for part in statement.body:
            value = part.value if isinstance(part, cst.Assign | cst.AnnAssign | cst.Expr) else None
            if value is not None and _copies(source, value):
                found.append(_seldom(source, statement, part))
    return found


def _copies(source: Source, value: Node) -> bool:
    """Whether a value holds a copy of a model's weights."""
    for one in below(value):
        if isinstance(one, cst.Call) and qualified(source, one.func) == "copy.deepcopy" and one.args:
            given = one.args[0].value
            if isinstance(given, cst.Call) and called(given) == "state_dict":
                return True
            name = dotted(given).rpartition(".")[2].lower()
            if any(word in name for word in ("model", "net", "module")):
                return True
        if isinstance(one, cst.DictComp | cst.ListComp):
            walked = [called(call) for call in calls(one.for_in.iter)]
            copied = [called(call) for call in calls(one.value if isinstance(one, cst.DictComp) else one.elt)]
            if {"state_dict", "parameters", "named_parameters"} & set(walked) and {"clone", "deepcopy"} & set(copied):
                return True
    return False


def _seldom(source: Source, statement: cst.SimpleStatementLine, part: Node) -> Proposal:
    site = RewriteSite(ID, Claim.EXACT, source, statement)
    name = dotted(part.targets[0].target) if isinstance(part, cst.Assign) and len(part.targets) == 1 else ""
    if not name or "." in name or len(statement.body) != 1:
        return site.refuse("all weights are copied in each step, and where the copy goes cannot be followed here")
    loop = loops_around(source, statement)[0]
    if source.parent(statement) is not loop.body:
        return site.refuse("all weights are copied under a condition already")
    if reason := _odd(source, statement, part):
        return site.refuse(reason)
    scope = scope_of(source, statement)
    functions = [one for one in source.nodes if isinstance(one, cst.FunctionDef | cst.Lambda)]
    is_shared = scope is source.module or any(isinstance(one, cst.Global | cst.Nonlocal) for one in below(scope))
    if is_shared and any(uses(source, one, name) for one in functions):
        return site.refuse(f"a function uses `{name}` too, and nobody can say when")
    reads = [use for use in uses(source, scope, name) if not binds(source, use)]
    if not reads:
        return site.refuse(f"`{name}` is never used: the copy can be left out, which is for you to decide")
    start, end = source.span(loop)
    if all(source.span(use)[0] >= end for use in reads):
        return _at_the_end(site, loop, name)
    if not all(start <= source.span(use)[0] < end for use in reads):
        return site.refuse(f"`{name}` is used in the loop and outside of it, so each copy may be needed")
    return _where_it_is_used(site, loop, name, reads)


def _odd(source: Source, statement: Node, part: Node) -> str:
    """Why the copying statement may do more than copy."""
    assert isinstance(part, cst.Assign)
    other = next((called(call) for call in calls(part.value) if called(call) not in _COPYING), None)
    if other is not None:
        return f"`{other or 'a call'}` runs for the copy, and may do more than copy"
    if any(isinstance(one, cst.NamedExpr | cst.Await | cst.Yield | cst.IfExp) for one in below(part.value)):
        return "it does more than copying"
    if source.line(statement) != source.last_line(statement):
        return "the copy is written over several lines"
    return ""


def _changing(source: Source, nodes: Sequence[Node]) -> str:
    """Why these statements may change weights or run more than once; '' if they do not."""
    for node in nodes:
        for one in below(node):
            if isinstance(one, cst.Call) and called(one) not in _READS:
                return f"line {source.line(one)} calls `{called(one) or 'a function'}` between the copy and its use"
            if isinstance(one, cst.Del | cst.With | cst.Try | cst.While | cst.For):
                return f"line {source.line(one)} stands between the copy and its use"
    return ""


def _where_it_is_used(site: RewriteSite, loop: cst.For | cst.While, name: str, reads: list[Node]) -> Proposal:
    """Move the copy into the only `if` that uses it."""
    source, statement = site.source, site.node
    body = list(loop.body.body)
    index = body.index(statement)
    holders = {id(one): one for use in reads for one in [_child_of(source, loop, use)] if one is not None}
    holder = next(iter(holders.values()), None)
    if len(holders) != 1 or not isinstance(holder, cst.If) or holder not in body[index + 1 :]:
        return site.refuse(f"`{name}` is used in each step, or in the next one, so each copy is needed")
    inner = source.span(holder.body)
    if holder.orelse is not None or not all(inner[0] <= source.span(use)[0] < inner[1] for use in reads):
        return site.refuse(f"`{name}` is used in a condition or in several branches, so each copy may be needed")
    if not isinstance(holder.body, cst.IndentedBlock):
        return site.refuse("the condition and what it does stand on one line")
    first = holder.body.body[0]
    between = [*body[index + 1 : body.index(holder)], holder.test]
    made = {word for one in between for below_it in below(one) for word, _ in binding(below_it)}
    copied = {one.value for one in below(statement) if isinstance(one, cst.Name)}
    if changed := _changing(source, between):
        return site.refuse(f"{changed}, so a later copy may hold other weights")
    if made & copied:
        return site.refuse(f"`{sorted(made & copied)[0]}` is set between the copy and its use")
    if any(isinstance(one, _LEAVES) for part in between for one in below(part)):
        return site.refuse("the step may end between the copy and its use")
    if len([one for one in bindings(scope_of(source, statement), name) if not _is_none(one)]) != 1:
        return site.refuse(f"`{name}` is set in several places")
    line, text = source.line(statement), source.line_text(source.line(statement))
    gone = Edit(source.line_start(line), source.line_start(line + 1), "")
    moved = insert_line(source, source.line(first), source.indent(first) + text.strip())
    return site.change([gone, moved], "The weights are copied where the copy is used, not in each step.")


def _child_of(source: Source, loop: cst.For | cst.While, node: Node) -> Node | None:
    """The statement of a loop's body that holds a node."""
    children = set(loop.body.body)
    return next((above for above in source.ancestors(node) if above in children), None)


def _is_none(node: Node) -> bool:
    """Whether it is `best = None` or a tuple without a call."""
    if not isinstance(node, cst.Assign):
        return False
    plain = isinstance(node.value, cst.Name | cst.Tuple)
    return plain and not any(isinstance(one, cst.Call) for one in below(node.value))


def _at_the_end(site: RewriteSite, loop: cst.For | cst.While, name: str) -> Proposal:
    """Make the copy only in the last step, if the loop can tell which one is the last."""
    source, statement = site.source, site.node
    body = list(loop.body.body)
    step = step_name(loop)
    last = last_step(source, loop, step)
    if len(loops_around(source, statement)) != 1:
        return site.refuse(f"`{name}` is used behind the outer loop alone, and which of its steps is last is not known")
    if not step or not last:
        return site.refuse("the loop does not count its steps in a way that tells which one is the last")
    if reason := may_end_early(source, loop):
        return site.refuse(reason)
    made = [one for one in bindings(scope_of(source, statement), name) if not _is_none(one)]
    if len(made) != 1 or loop.orelse is not None:
        return site.refuse(f"`{name}` is set in several places")
    assert statement in body
    indent = source.indent(statement)
    line = source.line(statement)
    head = insert_line(source, line, f"{indent}if {step} + 1 == {last}:")
    start = source.line_start(line)
    return site.change(
        [head, Edit(start, start, step_of_indent(source))],
        "The weights are copied after the last step, not in each step.",
    )


COPY_EACH_STEP = Rewrite(ID, 30, Claim.EXACT, find)
