"""16, continued: a value that a `forward` makes from an argument that is the same object in each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import Proposal, RewriteSite, step_of_indent
from gpudoc.fix.rewrites.dependence import NamedValue, change_at, changed_later, init_edit, measured_values
from gpudoc.fix.rewrites.number_tables import ID
from gpudoc.fix.rewrites.pure import PureLines
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import (
    Function,
    argument,
    bases,
    below,
    binding,
    bindings,
    calls,
    class_of,
    dotted,
    function_of,
    loops_around,
    methods,
    parameters,
    scope_of,
    uses,
    words,
)

# functions that handle a model's attributes in a special way
_OWN_WAYS = frozenset({"compile", "script", "trace", "DataParallel", "setattr"})
_MOST_LINES, _DEPTH = 8, 3


@dataclass(frozen=True, slots=True)
class _Chain:
    """Consecutive lines of a `forward` that make `made` only from the argument `given`."""

    lines: tuple[cst.SimpleStatementLine, ...]
    given: str
    made: NamedValue


def find_of_arguments(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for `norm = scale(adj)` at a measured line of a `forward` that always gets the same `adj`."""
    found: list[Proposal] = []
    for hot in measured_values(source, evidence):
        function = function_of(source, hot.statement)
        owner = class_of(source, function) if function is not None else None
        if function is None or owner is None or function.name.value != "forward" or function.decorators:
            continue
        if not any(base.endswith("Module") for base in bases(source, owner)):
            continue
        for given in sorted(parameters(function) - {"self"}):
            chain = _chain(source, function, hot, given)
            calling = _calls_of(source, owner) if chain is not None else []
            same = [name for call in calling if (name := _same_object(source, function, call, given))]
            if chain is not None and same and len(same) == len(calling):
                found.append(_kept_for(source, owner, function, chain, calling, same))
                break
    return list(dict.fromkeys(found))


def _chain(source: Source, function: Function, hot: NamedValue, given: str) -> _Chain | None:
    """The lines around a measured line that only need one argument, if later lines use exactly one of their names."""
    body = list(function.body.body)
    if hot.statement not in body or not uses(source, function, given):
        return None
    first = last = body.index(hot.statement)
    while first and last - first < _MOST_LINES and not _is_pure(source, body[first : last + 1], given):
        first -= 1
    while last + 1 < len(body) and _is_value(body[last + 1]) and _is_pure(source, body[first : last + 2], given):
        last += 1
    lines = body[first : last + 1]
    if not _is_pure(source, lines, given) or not any(uses(source, line, given) for line in lines):
        return None
    inside = {one for line in lines for one in below(line)}
    names = [_name_set(line) for line in lines]
    behind = [name for name in names if any(one not in inside for one in uses(source, function, name))]
    if len(behind) != 1 or names.count(behind[0]) != 1:
        return None
    statement = lines[names.index(behind[0])]
    assert isinstance(statement, cst.SimpleStatementLine)
    part = statement.body[0]
    assert isinstance(part, cst.Assign)
    kept = tuple(line for line in lines if isinstance(line, cst.SimpleStatementLine))
    return _Chain(kept, given, NamedValue(statement, behind[0], part.value))


def _is_value(statement: Node) -> bool:
    """Whether a statement is `name = value`."""
    return bool(_name_set(statement))


def _name_set(statement: Node) -> str:
    part = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1 else None
    plain = isinstance(part, cst.Assign) and len(part.targets) == 1 and isinstance(part.targets[0].target, cst.Name)
    return dotted(part.targets[0].target) if plain and isinstance(part, cst.Assign) else ""


def _is_pure(source: Source, lines: Sequence[Node], given: str) -> bool:
    if not all(_is_value(line) for line in lines) or any(_name_set(line) == given for line in lines):
        return False
    looked = PureLines(source, lines[0], stays=True).look(lines, frozenset({given}))
    return not looked.reason and not looked.keys


def _calls_of(source: Source, owner: cst.ClassDef) -> list[cst.Call]:
    """The calls of all objects of a model's class that the script makes; empty if one of them is never called here."""
    found: list[cst.Call] = []
    for made in (call for call in calls(source.module) if dotted(call.func) == owner.name.value):
        above = source.parent(made)
        while isinstance(above, cst.Attribute | cst.Call):
            # GCN().to(device)
            above = source.parent(above)
        name = dotted(above.targets[0].target) if isinstance(above, cst.Assign) else ""
        calling = [call for call in calls(source.module) if dotted(call.func) == name != ""]
        if not calling:
            return []
        found += [call for call in calling if call not in found]
    return found


def _same_object(source: Source, function: Function, call: cst.Call, given: str, depth: int = 0) -> str:
    """The variable of the script that a call passes, if it is set once; '' for anything else."""
    order = [one.name.value for one in function.params.params][1:]
    arg = argument(call, given, order.index(given) if given in order else None)
    if arg is None or not isinstance(arg.value, cst.Name) or any(one.star for one in call.args):
        return ""
    name, outer = arg.value.value, function_of(source, call)
    above = class_of(source, outer) if outer is not None else None
    if outer is not None and above is not None and outer.name.value == "forward" and name in parameters(outer):
        # a model passes its own argument on to a layer
        if bindings(outer.body, name) or depth >= _DEPTH:
            return ""
        same = {_same_object(source, outer, one, name, depth + 1) for one in _calls_of(source, above)}
        return same.pop() if len(same) == 1 else ""
    # a function that gets it under the same name passes the same object on
    made = _set_for(source, [call], name)
    once = len(made) == 1 and isinstance(made[0], cst.Assign) and not loops_around(source, made[0])
    return name if once else ""


def _set_for(source: Source, calling: Sequence[Node], name: str) -> list[Node]:
    """The nodes that set the variable which calls pass: in their own scope, or anywhere if it is not set there."""
    everywhere = [one for one in bindings(source.module, name) if not isinstance(one, cst.Param)]
    scopes = {scope_of(source, one) for one in calling}
    here = [one for one in everywhere if scope_of(source, one) in scopes]
    shared = any(isinstance(one, cst.Global | cst.Nonlocal) for one in everywhere)
    return everywhere if shared or not here else here


def _kept_for(
    source: Source, owner: cst.ClassDef, function: Function, chain: _Chain, calling: list[cst.Call], same: list[str]
) -> Proposal:
    site = RewriteSite(ID, Claim.EXACT, source, chain.made.statement)
    if taken := _OWN_WAYS & words(source):
        return site.refuse(f"`{min(taken)}` in this file treats a model in its own way")
    for name in dict.fromkeys(same):
        if reason := _changed_between(source, calling, name):
            return site.refuse(reason)
    if reason := changed_later(source, function, chain.made):
        return site.refuse(reason)
    name, step = chain.made.name, step_of_indent(source)
    kept, kept_for = f"self._{name}", f"self._{name}_of"
    initial = methods(owner).get("__init__")
    edit = init_edit(source, initial, [f"{kept_for} = {kept} = None"]) if initial is not None else None
    if edit is None:
        return site.refuse(f"`{owner.name.value}` has no `__init__` here that could hold it and surely runs to its end")
    if {f"_{name}", f"_{name}_of"} & words(source):
        return site.refuse(f"the name `_{name}` is taken")
    first, last = source.line(chain.lines[0]), source.last_line(chain.lines[-1])
    texts = [source.line_text(line) for line in range(first, last + 1)]
    if any('"""' in text or "'''" in text or text.rstrip("\r\n").endswith("\\") for text in texts):
        return site.refuse("a text stands on several lines")
    indent, newline = source.indent(chain.lines[0]), source.newline(first)
    text = [f"{indent}if {kept_for} is not {chain.given}:{newline}"]
    text += [step + one if one.strip() else one for one in texts]
    text += [f"{indent}{step}{kept_for}, {kept} = {chain.given}, {name}{newline}", f"{indent}{name} = {kept}{newline}"]
    whole = Edit(source.line_start(first), source.line_start(last + 1), "".join(text))
    return site.change([edit, whole], f"What was made of `{chain.given}` last stays in memory, and so does it.")


def _is_another(source: Source, scope: Node, use: Node, name: str) -> bool:
    """Whether a function has its own variable of this name; a parameter may be the same object."""
    function = function_of(source, use)
    if function is None or function is scope or name in parameters(function):
        return False
    made = bindings(function, name)
    return bool(made) and not any(isinstance(one, cst.Global | cst.Nonlocal) for one in made)


def _changed_between(source: Source, calling: list[cst.Call], name: str) -> str:
    """The line that may change a model's argument after its first use by the model; '' if there is none."""
    (made,) = (one for one in _set_for(source, calling, name) if isinstance(one, cst.Assign))
    if any(word in source.code(made) for word in ("Parameter", "requires_grad")):
        return f"line {source.line(made)} makes `{name}` something that is trained"
    scope = scope_of(source, made)
    begins = min(source.span(one)[0] for one in below(scope) if isinstance(one, cst.For | cst.While) or one in calling)
    passed = {arg.value for call in calling for arg in call.args}
    for use in uses(source, source.module, name):
        before = source.span(use)[0] < begins and scope_of(source, use) is scope and not loops_around(source, use)
        if (
            use in passed
            or before
            or _is_another(source, scope, use, name)
            or any(part is use for one in source.ancestors(use) for _, part in binding(one))
        ):
            continue
        if reason := change_at(source, use, name, whole=True):
            return reason
    return ""
