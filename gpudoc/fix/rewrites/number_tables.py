"""16, continued: a value that several lines, or a function of the file, rebuild from numbers in each step."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import (
    Proposal,
    RewriteSite,
    insert_line,
    measured_lines,
    replace,
    statements,
    step_of_indent,
)
from gpudoc.fix.rewrites.dependence import NamedValue, changed_later, init_edit, root
from gpudoc.fix.rewrites.pure import PureLines, other_types
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import (
    Function,
    below,
    binding,
    called,
    calls,
    class_of,
    dotted,
    function_of,
    local_functions,
    loops_around,
    methods,
    parameters,
    qualified,
    scope_of,
    uses,
    words,
)

ID = "constant-per-step"
_LEAST = 0.05
_ONCE = frozenset({"__init__", "main", "setup", "__len__"})


def find_built(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for `bias = self.make_bias(t)`, or for loops that fill a table, at measured lines."""
    found: list[Proposal] = []
    for statement in statements(source, measured_lines(source, evidence, least=0.01)):
        if _is_kept(source, statement):
            continue
        share = sum(
            hot.share
            for hot in evidence.lines_in(source.path, least=0.0)
            if source.line(statement) <= hot.line <= source.last_line(statement)
        )
        if isinstance(statement, cst.SimpleStatementLine) and share >= _LEAST:
            found += _of_call(source, statement)
        found += _of_lines(source, evidence, statement)
    return list(dict.fromkeys(found))


def _is_kept(source: Source, statement: Node) -> bool:
    """Whether a statement runs only if nothing is kept yet, or only once."""
    for above in source.ancestors(statement):
        if isinstance(above, cst.If) and isinstance(above.test, cst.Comparison):
            operator = above.test.comparisons[0].operator
            if isinstance(operator, cst.NotIn | cst.Is):
                return True
    function = function_of(source, statement)
    if loops_around(source, statement):
        return False
    return function is None or function.name.value in _ONCE or any(called(one) == "backward" for one in calls(function))


def _of_call(source: Source, statement: cst.SimpleStatementLine) -> list[Proposal]:
    """A call of a function of this file whose arguments are plain numbers."""
    part = statement.body[0]
    whole = isinstance(part, cst.Assign) and len(part.targets) == 1 and isinstance(part.targets[0].target, cst.Name)
    for call in calls(statement):
        if qualified(source, call.func) or not local_functions(source, called(call)):
            continue
        value: cst.BaseExpression = call
        if whole and isinstance(part, cst.Assign) and not PureLines(source, statement).look([part.value]).reason:
            value = part.value
        lines = PureLines(source, statement).look([value])
        if not lines.calls_local:
            continue
        site = RewriteSite(ID, Claim.EXACT, source, statement)
        if lines.reason:
            # a step must compute with the batch, the model or the step number, so only random draws are worth a refusal
            return [site.refuse(lines.reason)] if _draws(lines.reason) else []
        name = part.targets[0].target.value if isinstance(part, cst.Assign) and value is part.value and whole else ""  # type: ignore[attr-defined]
        return [_kept_call(site, statement, value, name, lines)]
    return []


def _draws(reason: str) -> bool:
    return "draws random" in reason


def _kept_call(
    site: RewriteSite, statement: cst.SimpleStatementLine, value: cst.BaseExpression, name: str, lines: PureLines
) -> Proposal:
    source = site.source
    if reason := other_types(source) or _used_up(source, statement, value, name):
        return site.refuse(reason)
    if len(statement.body) != 1 or source.line(statement) != source.last_line(statement):
        return site.refuse("it stands on several lines")
    word = name or called(next(calls(value))).strip("_")
    place = _Place.of(site, statement, word, lines.keys)
    if isinstance(place, str):
        return site.refuse(place)
    step, indent = step_of_indent(source), source.indent(statement)
    guarded = place.guard(source.code(value), indent, step, source.newline(source.line(statement)))
    return site.change(
        [*place.edits, insert_line(source, source.line(statement), guarded), replace(source, value, place.held)],
        "What was made last stays in memory.",
    )


def _used_up(source: Source, statement: cst.SimpleStatementLine, value: cst.BaseExpression, name: str) -> str:
    """Why the code that receives the kept value might change it, or why the line may not need it each time."""
    if name:
        return changed_later(source, scope_of(source, statement), NamedValue(statement, name, value))
    inside: Node = value
    for above in source.ancestors(value):
        if above is statement:
            break
        if isinstance(above, cst.ListComp | cst.GeneratorExp | cst.DictComp | cst.SetComp | cst.Lambda | cst.IfExp):
            return "only a part of the line needs it"
        inside = above
    taker = source.parent(value)
    if isinstance(taker, cst.BinaryOperation | cst.Comparison | cst.UnaryOperation):
        return ""
    outer = source.parent(taker) if isinstance(taker, cst.Arg) else None
    if isinstance(outer, cst.Call) and qualified(source, outer.func).partition(".")[0] in ("torch", "numpy"):
        return "" if not called(outer).endswith("_") else f"`{called(outer)}` changes it"
    if isinstance(outer, cst.Call) and called(outer) in ("masked_fill", "add", "mul", "sub", "where", "softmax"):
        return ""
    return f"line {source.line(inside)} hands it on, and it may be changed there"


class _Place:
    """Where a value is kept: in the object of a method, in front of a loop, or above a function."""

    def __init__(self, kept: str, keys: Sequence[str], edits: list[Edit], *, shared: bool) -> None:
        self.kept, self.edits, self._shared = kept, edits, shared
        self.key = keys[0] if len(keys) == 1 else f"({', '.join(keys)})" if keys else ""

    @staticmethod
    def of(site: RewriteSite, statement: Node, word: str, keys: Sequence[str]) -> _Place | str:
        """The place for `word`, or the reason if there is none."""
        source, loops = site.source, loops_around(site.source, statement)
        function = function_of(source, statement)
        owner = class_of(source, function) if function is not None else None
        if f"_{word}" in words(source):
            return f"the name `_{word}` is taken"
        empty = "{}" if keys else "None"
        if owner is not None and function is not None:
            if not function.params.params or function.params.params[0].name.value != "self" or function.decorators:
                return f"`{function.name.value}` is another kind of method than a plain one"
            initial = methods(owner).get("__init__")
            edit = init_edit(source, initial, [f"self._{word} = {empty}"]) if initial is not None else None
            if edit is None:
                return f"`{owner.name.value}` has no `__init__` here that could hold it and surely runs to its end"
            return _Place(f"self._{word}", keys, [edit], shared=False)
        if loops:
            line = source.line(loops[-1])
            return _Place(
                f"_{word}",
                keys,
                [insert_line(source, line, f"{source.indent(loops[-1])}_{word} = {empty}")],
                shared=False,
            )
        if function is None or source.parent(function) is not source.module:
            return "it is not in a function at the top of the file, above which it could stand"
        first = source.line(function.decorators[0]) if function.decorators else source.line(function)
        keys = keys or [f'"{word}"']
        top = insert_line(source, first, f"_{word} = {{}}" + 2 * source.newline(first))
        return _Place(f"_{word}", keys, [top], shared=True)

    @property
    def held(self) -> str:
        """How the kept value is read."""
        return f"{self.kept}[{self.key}]" if self.key else self.kept

    @property
    def test(self) -> str:
        """The condition that is true while the value is not kept yet."""
        return f"{self.key} not in {self.kept}" if self.key else f"{self.kept} is None"

    def keep(self, value: str) -> list[str]:
        """The lines that keep a value and release the previous one."""
        if not self.key:
            return [f"{self.kept} = {value}"]
        if self._shared:
            return [f"{self.kept}.clear()", f"{self.held} = {value}"]
        return [f"{self.kept} = {{{self.key}: {value}}}"]

    def guard(self, value: str, indent: str, step: str, newline: str) -> str:
        """The lines that make and keep the value if it is not kept yet."""
        return newline.join([f"{indent}if {self.test}:", *(f"{indent}{step}{line}" for line in self.keep(value))])


def _of_lines(source: Source, evidence: RunEvidence, statement: Node) -> list[Proposal]:
    """Changes or refusals for lines that fill a table in loops and of which one name is used later."""
    for block, start in _levels(source, statement):
        loop = block.body[start]
        if not isinstance(loop, cst.For) or any(called(one) in ("backward", "step") for one in calls(loop)):
            continue
        lines = PureLines(source, block.body[start])
        first, last = _reach(source, block, start)
        nodes = list(block.body[first : last + 1])
        share = sum(
            hot.share
            for hot in evidence.lines_in(source.path, least=0.0)
            if source.line(nodes[0]) <= hot.line <= source.last_line(nodes[-1])
        )
        outer = loops_around(source, nodes[0])
        function = function_of(source, nodes[0])
        if share < _LEAST or (not outer and (function is None or _is_built_elsewhere(source, nodes, function))):
            continue
        lines.look(nodes)
        if any(isinstance(one, cst.Return) for node in nodes for one in below(node)):
            continue
        if lines.reason and not _draws(lines.reason):
            continue
        site = RewriteSite(ID, Claim.EXACT, source, loop)
        return [site.refuse(lines.reason) if lines.reason else _kept_lines(site, nodes, lines)]
    return []


def _levels(source: Source, statement: Node) -> list[tuple[cst.IndentedBlock, int]]:
    """The blocks of one function around a statement, outermost first, each with the index of the holding entry."""
    found, inner = [], statement
    for above in source.ancestors(statement):
        if isinstance(above, cst.IndentedBlock):
            found.append((above, list(above.body).index(inner)))  # type: ignore[arg-type]
        if isinstance(above, cst.FunctionDef | cst.ClassDef):
            break
        inner = above
    return found[::-1]


def _names(node: Node) -> set[str]:
    return {name for one in below(node) for name, _ in binding(one) if "." not in name}


def _filled(source: Source, node: Node) -> set[str]:
    """The names that a statement sets or changes in place."""
    found = _names(node)
    for call in calls(node):
        if isinstance(call.func, cst.Attribute) and isinstance(call.func.value, cst.Name):
            found.add(call.func.value.value)
    return {name for name in found if not qualified(source, cst.Name(name)) and name != "self"}


def _reach(source: Source, block: cst.IndentedBlock, start: int) -> tuple[int, int]:
    """The first and last index of the lines that make one value, from those that create it to those that finish it."""
    body, first, last = block.body, start, start
    filled = _filled(source, body[start])
    while first and _names(body[first - 1]) & filled and isinstance(body[first - 1], cst.SimpleStatementLine | cst.For):
        first -= 1
        filled |= _filled(source, body[first])
    made = {name for one in body[first : last + 1] for name in _names(one)}
    while last + 1 < len(body):
        after = body[last + 1]
        part = after.body[0] if isinstance(after, cst.SimpleStatementLine) and len(after.body) == 1 else None
        fills = isinstance(after, cst.For) and bool(_filled(source, after) & made)
        read = isinstance(part, cst.Assign | cst.Expr) and any(uses(source, part.value, name) for name in made)
        if not (fills or read) or PureLines(source, after).look(list(body[first : last + 2])).reason:
            break
        last += 1
        made |= _names(after)
    return first, last


def _is_built_elsewhere(source: Source, nodes: Sequence[Node], function: Function) -> bool:
    """Whether a function does nothing but these lines, so that its caller may keep its result instead."""
    others = [one for one in function.body.body if one not in nodes and not _is_text(one)]
    return not PureLines(source, nodes[0]).look(others, parameters(function)).reason


def _is_text(node: Node) -> bool:
    part = node.body[0] if isinstance(node, cst.SimpleStatementLine) and node.body else None
    return isinstance(part, cst.Expr) and isinstance(part.value, cst.SimpleString)


def _kept_lines(site: RewriteSite, nodes: Sequence[Node], lines: PureLines) -> Proposal:
    source, scope = site.source, scope_of(site.source, nodes[0])
    inside = {one for node in nodes for one in below(node)}
    made = {name for node in nodes for name in _names(node)}
    outside = {
        name
        for name in made
        if any(one not in inside and not _is_bound_anew(source, one, name) for one in uses(source, scope, name))
    }
    if len(outside) != 1:
        return site.refuse(f"{len(outside)} values of these lines are used elsewhere, and one alone can be kept")
    (name,) = outside
    own = next((one for node in nodes[::-1] for one in _assigns(node, name)), None)
    if own is None or any(one not in inside and any(n == name for n, _ in binding(one)) for one in below(scope)):
        return site.refuse(f"`{name}` is set elsewhere, too")
    reason = other_types(source) or _changed_behind(source, scope, inside, name, own)
    if reason:
        return site.refuse(reason)
    start, end = source.line(nodes[0]), source.last_line(nodes[-1])
    texts = [source.line_text(n) for n in range(start, end + 1)]
    if any('"""' in text or "'''" in text or text.rstrip("\r\n").endswith("\\") for text in texts):
        return site.refuse("a text stands on several lines")
    place = _Place.of(site, nodes[0], name, lines.keys)
    if isinstance(place, str):
        return site.refuse(place)
    step, indent, newline = step_of_indent(source), source.indent(nodes[0]), source.newline(start)
    kept = [f"{indent}{step}{line}{newline}" for line in place.keep(name)]
    text = [f"{indent}if {place.test}:{newline}", *(step + one if one.strip() else one for one in texts), *kept]
    text.append(f"{indent}{name} = {place.held}{newline}")
    whole = Edit(source.line_start(start), source.line_start(end + 1), "".join(text))
    return site.change([*place.edits, whole], "What was made last stays in memory.")


def _assigns(node: Node, name: str) -> list[cst.Assign]:
    return [
        one for one in below(node)
        if isinstance(one, cst.Assign) and any(dotted(two.target) == name for two in one.targets)
    ]  # fmt: skip


def _changed_behind(source: Source, scope: Node, inside: set[Node], name: str, own: cst.Assign) -> str:
    """The line that changes the value after the lines that make it; '' if there is none."""
    statement = source.parent(own)
    if not isinstance(statement, cst.SimpleStatementLine):
        return "it stands on a line with others"
    # the lines themselves were checked already; other uses are checked as for any value
    for one in below(scope):
        if one in inside:
            continue
        used = isinstance(one, cst.SimpleStatementLine) and uses(source, one, name)
        if used and (reason := changed_later(source, one, NamedValue(statement, name, own.value))):
            return reason
        shares = isinstance(one, cst.Assign) and root(one.value) == name
        if shares or (isinstance(one, cst.For | cst.CompFor) and root(one.iter) == name):
            return f"line {source.line(one)} gives a part of `{name}` another name, which may be changed"
    return ""


def _sets(node: Node, name: str) -> bool:
    return any(bound == name for bound, _ in binding(node))


def _is_bound_anew(source: Source, node: Node, name: str) -> bool:
    """Whether a loop around a use sets this name itself."""
    return any(
        isinstance(above, cst.For | cst.ListComp | cst.GeneratorExp | cst.CompFor)
        and any(_sets(one, name) for one in below(above) if isinstance(one, cst.For | cst.CompFor))
        for above in source.ancestors(node)
    ) or isinstance(source.parent(node), cst.For | cst.CompFor)
