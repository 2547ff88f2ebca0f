"""34: a backward through a network that it does not train: a teacher, a target, a generator in the critic's step."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.flow import backwards, hidden_backward, is_without_grad
from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import (
    Proposal,
    Rewrite,
    RewriteSite,
    indented,
    insert_line,
    measured_lines,
    step_of_indent,
    torch_name,
)
from gpudoc.fix.rewrites.networks import LOOKS, drops_gradients, is_frozen, is_network, is_trained, networks
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import (
    argument,
    below,
    binding,
    called,
    calls,
    dotted,
    enclosing,
    function_of,
    is_false,
    local_class,
    local_functions,
    loops_around,
    own,
    qualified,
    scope_of,
    uses,
    words,
)

ID = "untrained-network"
# functions that may get a network because they do not use its gradients
_TAKES = LOOKS | {"deepcopy", "save", "isinstance", "type", "id", "compile"}
# attributes and methods whose result has no graph
_ENDS = frozenset({"detach", "detach_", "item", "data", "argmax", "argmin", "numpy", "tolist", "shape", "size"})
_READS = {
    "register_hook": "has hooks on gradients",
    "register_full_backward_hook": "has hooks on gradients",
    "register_post_accumulate_grad_hook": "has hooks on gradients",
    "grad_fn": "works with the graph itself",
    "add_param_group": "gives an optimizer more weights later",
    "DataParallel": "copies a model to several GPUs",
    "DistributedDataParallel": "wraps a model, which waits for each of its gradients",
    "FullyShardedDataParallel": "wraps a model, which waits for each of its gradients",
    "fully_shard": "wraps a model, which waits for each of its gradients",
}
_DEPTH = 5


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for networks before a measured backward whose gradients are not used."""
    lines = set(measured_lines(source, evidence))
    found: list[Proposal] = []
    for backward in backwards(source.module):
        statement = enclosing(source, backward, cst.SimpleStatementLine)
        if called(backward) != "backward" or not isinstance(statement, cst.SimpleStatementLine):
            continue
        untrained = [call for call in _before(source, statement) if _is_untrained(source, call, statement)]
        if untrained and lines & {source.line(one) for one in (statement, *untrained)}:
            found += _proposal(source, statement, untrained)
    return list(dict.fromkeys(found))


def _before(source: Source, statement: cst.SimpleStatementLine) -> list[cst.Call]:
    """The calls whose results go into a backward, in the same round of its loop or in its function."""
    loops = loops_around(source, statement)
    place = loops[0].body if loops else scope_of(source, statement)
    end = source.span(statement)[0]
    made = [
        one for one in own(place)
        if isinstance(one, cst.Assign | cst.AugAssign) and source.span(one)[0] < end
        and loops_around(source, one) == loops
    ]  # fmt: skip
    parts: list[Node] = [statement]
    for one in reversed(made):
        if any(uses(source, part, name) for name, _ in binding(one) for part in parts):
            parts.append(one.value)
    found = [call for part in parts for call in calls(part)]
    return sorted(found, key=lambda call: source.span(call)[0])


def _is_untrained(source: Source, call: cst.Call, backward: Node) -> bool:
    """Whether a call runs a network whose gradients only come from this backward and are not used."""
    name = dotted(call.func)
    return (
        is_network(source, call)
        and not is_without_grad(source, call)
        and not _is_detached(source, call)
        and not is_frozen(source, name)
        and drops_gradients(source, name, backward)
        and all(_is_apart(source, arg.value, backward, 0) for arg in call.args)
    )


def _is_detached(source: Source, call: cst.Call) -> bool:
    part: Node = call
    for above in source.ancestors(call):
        if isinstance(above, cst.Attribute) and above.attr.value in _ENDS:
            return True
        if not isinstance(above, cst.Attribute | cst.Call | cst.Subscript) or _subject(above) is not part:
            return False
        part = above
    return False


def _subject(node: cst.Attribute | cst.Call | cst.Subscript) -> Node:
    return node.func if isinstance(node, cst.Call) else node.value


def _is_apart(source: Source, node: Node, backward: Node, depth: int) -> bool:
    """Whether a value certainly comes from no network that the backward trains and is not trained itself."""
    if depth > _DEPTH:
        return False
    for one in below(node):
        if isinstance(one, cst.Call) and not _call_is_apart(source, one, backward):
            return False
        if isinstance(one, cst.Name | cst.Attribute) and not _name_is_apart(source, one, backward, depth):
            return False
    return True


def _call_is_apart(source: Source, call: cst.Call, backward: Node) -> bool:
    grad = argument(call, "requires_grad")
    if called(call) in ("Parameter", "requires_grad_") or (grad is not None and not is_false(grad.value)):
        return False
    if dotted(call.func) in networks(source):
        return is_network(source, call) and drops_gradients(source, dotted(call.func), backward)
    return not _runs_network(source, call, 0)


def _runs_network(source: Source, call: cst.Call, depth: int) -> bool:
    """Whether a call reaches a network through functions of this file."""
    if dotted(call.func) in networks(source) or depth > _DEPTH:
        return True
    if qualified(source, call.func):
        return False
    bodies = [one for one in local_functions(source, called(call)) if one is not function_of(source, call)]
    return any(_runs_network(source, one, depth + 1) for body in bodies for one in calls(body))


def _name_is_apart(source: Source, one: cst.Name | cst.Attribute, backward: Node, depth: int) -> bool:
    above, name = source.parent(one), dotted(one)
    if isinstance(above, cst.Attribute) or (isinstance(above, cst.Arg) and above.keyword is one):
        return True
    if isinstance(above, cst.Call) and above.func is one:
        return "." not in name or _is_fixed(source, one, name.rpartition(".")[0], backward, depth)
    return name not in networks(source) and _is_fixed(source, one, name, backward, depth)


def _is_fixed(source: Source, use: Node, name: str, backward: Node, depth: int) -> bool:
    """Whether `_is_apart` holds for all values that a name is set to."""
    first = name.partition(".")[0]
    if not first or qualified(source, cst.Name(first)) or name in networks(source):
        return bool(first) and name not in networks(source)
    scope = scope_of(source, use)
    made = _bound_in(scope, name, first) or _bound_in(source.module, name, first)
    for part in made:
        if isinstance(part, cst.Param):
            if not _parameter_is_apart(source, part, backward, depth):
                return False
        elif isinstance(part, cst.For | cst.CompFor):
            if not _is_apart(source, part.iter, backward, depth + 1):
                return False
        elif isinstance(part, cst.Assign | cst.AugAssign | cst.AnnAssign) and part.value is not None:
            inside = any(above is part for above in source.ancestors(use))
            if not inside and not _is_apart(source, part.value, backward, depth + 1):
                return False
    return True


def _bound_in(scope: Node, *names: str) -> list[Node]:
    """The nodes that set one of these names in a function or a module, without the functions inside it."""
    return [one for one in own(scope) if any(name in names for name, _ in binding(one))]


def _parameter_is_apart(source: Source, param: cst.Param, backward: Node, depth: int) -> bool:
    """Whether `_is_apart` holds for a parameter's argument in each call of its function in this file."""
    function = enclosing(source, param, (cst.FunctionDef, cst.Lambda))
    if not isinstance(function, cst.FunctionDef) or param.name.value == "self":
        return isinstance(function, cst.FunctionDef)
    names = [one.name.value for one in function.params.params if one.name.value != "self"]
    sites = [call for call in calls(source.module) if called(call) == function.name.value]
    if not sites or param.name.value not in names:
        return False
    given = [argument(call, param.name.value, names.index(param.name.value)) for call in sites]
    return all(arg is not None and _is_apart(source, arg.value, backward, depth + 1) for arg in given)


def _proposal(source: Source, statement: cst.SimpleStatementLine, untrained: list[cst.Call]) -> list[Proposal]:
    """The change or the refusal at one backward; none if it is done already."""
    site = RewriteSite(ID, Claim.EXACT, source, untrained[0])
    edits: dict[tuple[int, int, str], Edit] = {}
    for call in untrained:
        for edit in _without_graph(source, call, statement, untrained):
            edits.setdefault((edit.start, edit.end, edit.text), edit)
    names = list(dict.fromkeys(dotted(call.func) for call in untrained))
    if not edits:
        return []
    if reason := _why_not(source, names):
        return [site.refuse(reason)]
    told = " and ".join(f"`{name}`" for name in names)
    return [site.change(list(edits.values()), f"This backward no longer goes through {told}.")]


def _why_not(source: Source, names: list[str]) -> str:
    """Why gradients of these networks may be needed; '' if nothing indicates it."""
    for word, reason in _READS.items():
        if word in words(source):
            return f"this file {reason}"
    for one in source.nodes:
        if isinstance(one, cst.Attribute) and one.attr.value == "grad" and not _is_function(source, one):
            return f"line {source.line(one)} reads gradients, perhaps those that would be gone"
    if hidden := hidden_backward(source):
        return f"line {hidden} looks up an attribute by its name, which may be `backward`"
    for name in names:
        if taken := _given_away(source, name):
            return f"`{taken}` is given `{name}`, and may use its gradients"
    return "" if torch_name(source) else "the file does not import torch by a name that a new line could use"


def _given_away(source: Source, network: str) -> str:
    """The function that gets a network and is not in this file; '' if there is none."""
    for call in calls(source.module):
        shown = local_functions(source, called(call)) or local_class(source, called(call)) is not None
        if not shown and called(call) not in _TAKES and any(dotted(arg.value) == network for arg in call.args):
            return source.code(call.func)
    return ""


def _is_function(source: Source, one: cst.Attribute) -> bool:
    above = source.parent(one)
    return isinstance(above, cst.Call) and above.func is one


def _without_graph(
    source: Source, call: cst.Call, backward: cst.SimpleStatementLine, untrained: list[cst.Call]
) -> list[Edit]:
    """The edits that remove the graph of a call's result from this backward."""
    detached = Edit(source.outer_span(call)[1], source.outer_span(call)[1], ".detach()")
    statement = enclosing(source, call, cst.SimpleStatementLine)
    part = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1 else None
    if not isinstance(statement, cst.SimpleStatementLine) or not isinstance(part, cst.Assign):
        return [detached]
    names = [name for name, _ in binding(part)]
    later = [
        one for name in names for one in uses(source, scope_of(source, call), name)
        if source.span(one)[0] > source.span(backward)[1] and not any(two is part for two in source.ancestors(one))
    ]  # fmt: skip
    if later and is_trained(source, dotted(call.func)):
        return _at_uses(source, part, names, backward)
    run = [one for one in calls(part.value) if dotted(one.func) in networks(source)]
    whole = all(one in untrained for one in run) and source.line(statement) == source.line(part)
    moved = indented(source, statement, step_of_indent(source)) if whole else None
    if moved is None:
        return [detached]
    line = source.line(statement)
    return [insert_line(source, line, f"{source.indent(statement)}with {torch_name(source)}.no_grad():"), *moved]


def _at_uses(source: Source, made: cst.Assign, names: list[str], backward: Node) -> list[Edit]:
    """The edits that write `fake.detach()` before the backward, for a result that a later training step needs."""
    start, end = source.span(made)[1], source.span(backward)[0]
    found = [
        one
        for name in names
        for one in uses(source, scope_of(source, made), name)
        if start <= source.span(one)[0] < end and not _has_end(source, one)
    ]
    return [Edit(source.span(one)[1], source.span(one)[1], ".detach()") for one in found]


def _has_end(source: Source, one: Node) -> bool:
    above = source.parent(one)
    return isinstance(above, cst.Attribute) and above.attr.value in _ENDS | {"device", "dtype"}


UNTRAINED_NETWORK = Rewrite(ID, 34, Claim.EXACT, find)
