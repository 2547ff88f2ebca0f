"""11: an evaluation that records a graph although no backward follows."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from gpudoc.fix.flow import backwards, feeding_backward, is_plain, is_without_grad, key
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
    torch_name,
)
from gpudoc.fix.source import Node, Source
from gpudoc.fix.tree import (
    Function,
    below,
    binding,
    bindings,
    called,
    calls,
    class_of,
    dotted,
    function_of,
    local_class,
    local_functions,
    loops_around,
    qualified,
    uses,
    words,
)
from gpudoc.patterns import IGNORECASE, Pattern

ID = "evaluation-no-grad"
_EVALUATES = Pattern(
    r"(?:^|_)(?:eval|evaluate|evaluation|valid|validate|validation|val|test|infer|inference|predict|accuracy)(?:_|$)"
)
_NEEDS_GRADIENTS = Pattern(
    r"attack|adversar|fgsm|(?:^|_)pgd|perturb|saliency|attribut|grad(?!_norm)|explain|jacobian", IGNORECASE
)
_GIVES = frozenset({"append", "appendleft", "extend", "insert", "put", "setdefault"})
_LOOKS = frozenset({"isinstance", "hasattr", "print", "len", "type", "id", "map"})
# frameworks call these without gradients already
_HOOKS = frozenset({"validation_step", "test_step", "predict_step", "evaluate_step"})
_GRADIENT_WORDS = frozenset(
    {"create_graph", "enable_grad", "requires_grad_", "requires_grad", "jacobian", "hessian", "vjp", "jvp"}
)


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for functions, or else loops, that contain a measured line and only evaluate."""
    lines = [line for file, line in evidence.no_backward_at if file == source.path]
    found: list[Proposal] = []
    done: list[Node] = []
    for statement in statements(source, [*lines, *measured_lines(source, evidence)]):
        function = function_of(source, statement)
        evaluates = function is not None and (_is_evaluation(function) or _is_called_behind_eval(source, function))
        place = function if evaluates else _evaluating_loop(source, statement)
        if place is None or place in done or is_without_grad(source, statement):
            continue
        done.append(place)
        site = RewriteSite(ID, Claim.EXACT, source, place)
        reason = _why_not(source, place)
        found.append(site.refuse(reason) if reason else _change(site))
    return found


def _is_evaluation(function: Function) -> bool:
    if function.name.value in _HOOKS:
        return False
    if _EVALUATES.search(function.name.value):
        return True
    return not _trains(function) and any(called(call) == "eval" and not call.args for call in calls(function))


def _trains(function: Function) -> bool:
    return any(called(call) == "train" and not call.args for call in calls(function)) or bool(backwards(function))


def _is_called_behind_eval(source: Source, function: Function) -> bool:
    """Whether every use of a top-level function is a call that comes after `model.eval()` and uses this model."""
    name = function.name.value
    if source.parent(function) is not source.module or function.decorators or _trains(function):
        return False
    named = [one for one in source.nodes if isinstance(one, cst.Name) and one.value == name]
    taken = [(source.parent(one), one) for one in named if one is not function.name]
    return bool(taken) and all(
        isinstance(call, cst.Call) and call.func is one and _is_behind_eval(source, call, function)
        for call, one in taken
    )


def _is_behind_eval(source: Source, call: cst.Call, function: Function) -> bool:
    inner: Node = call
    for above in source.ancestors(call):
        if isinstance(above, cst.IndentedBlock | cst.Module):
            modes = _modes(above.body[: list(above.body).index(inner)])  # type: ignore[arg-type]
            if modes:
                model, mode = modes[-1]
                given = any(dotted(arg.value) == model for arg in call.args)
                return mode == "eval" and (given or bool(uses(source, function, model)))
        if isinstance(above, cst.FunctionDef) or (isinstance(above, cst.For | cst.While) and _modes(above.body.body)):
            return False
        inner = above
    return False


def _modes(block: Sequence[Node]) -> list[tuple[str, str]]:
    """`("model", "eval")` for each `model.eval()` and `model.train()` that is a statement of the block itself."""
    return [
        (dotted(call.func.value), called(call))
        for one in block
        if isinstance(one, cst.SimpleStatementLine)
        for call in calls(one)
        if called(call) in ("eval", "train") and isinstance(call.func, cst.Attribute)
    ]


def _evaluating_loop(source: Source, statement: Node) -> cst.For | None:
    """The outermost loop around a statement that comes after `model.eval()` in the same block."""
    loops = [loop for loop in loops_around(source, statement) if isinstance(loop, cst.For)]
    if isinstance(statement, cst.For):
        loops.insert(0, statement)
    for loop in reversed(loops):
        block = source.parent(loop)
        if not isinstance(block, cst.IndentedBlock | cst.Module):
            continue
        modes = _modes(block.body[: list(block.body).index(loop)])
        if modes and modes[-1][1] == "eval":
            return loop
    return None


def _why_not(source: Source, place: Node) -> str:
    """Why gradients may be needed in a function or a loop; '' if nothing indicates it."""
    if not torch_name(source):
        return "the file does not import torch by a name that a new line could use"
    if needed := _gradients_in(source, place, depth=0):
        return needed
    kinds = _GRADIENT_WORDS - {"requires_grad"}
    given = [one for one in source.nodes if isinstance(one, cst.Name) and one.value in kinds]
    if given := [one for one in given if not _is_apart(source, one, place)]:
        return f"`{given[0].value}` in this file says that gradients of another kind are taken, perhaps in here"
    takes = [call for call in backwards(source.module) if "backward" not in called(call).lower()]
    if other := [called(call) for call in takes if not _is_apart(source, call, place)]:
        return f"`{other[0]}` in this file takes gradients, perhaps in the model that is evaluated"
    if receiver := _model_is_given_away(source, place):
        return f"`{receiver}` is given the model and is not in this file: it may need gradients"
    if isinstance(place, cst.FunctionDef):
        if place.asynchronous is not None or any(isinstance(one, cst.Yield) for one in below(place)):
            return "the function gives its results one by one, and what happens between them would lose gradients too"
        if any("jit" in source.code(one) or "compile" in source.code(one) for one in place.decorators):
            return "the function is compiled, and a decorator would change what is compiled"
        return _leaves_behind(source, place) or _result_is_needed(source, place)
    parts = {key(source, part) for one in below(place) for _, part in binding(one)} & feeding_backward(source)
    if parts and _read_outside(source, place, parts):
        return "what the loop computes may go into a backward later"
    return ""


def _is_apart(source: Source, node: Node, place: Node) -> bool:
    """Whether a line is in a top-level function that `place` certainly never calls."""
    functions = [one for one in source.ancestors(node) if isinstance(one, cst.FunctionDef)]
    outer = functions[-1] if functions else None
    if outer is None or outer is place or outer.decorators or source.parent(outer) is not source.module:
        return False
    name = outer.name.value
    for one in source.nodes:
        if isinstance(one, cst.Name) and one.value == name and one is not outer.name:
            call = source.parent(one)
            # a function that is passed as a value may be called anywhere, for example by a hook of the model
            if not isinstance(call, cst.Call) or call.func is not one:
                return False
    return name not in _names_reached(source, place)


def _names_reached(source: Source, place: Node) -> set[str]:
    """Every name in code that `place` may reach: its own, functions that it names, and all classes."""
    waiting = [place, *(one for one in source.nodes if isinstance(one, cst.ClassDef))]
    seen: set[str] = set()
    while waiting:
        fresh = {one.value for one in below(waiting.pop()) if isinstance(one, cst.Name)} - seen
        seen |= fresh
        waiting += [one for name in fresh for one in local_functions(source, name)]
    return seen


def _gradients_in(source: Source, place: Node, *, depth: int) -> str:
    for call in calls(place):
        name = called(call)
        if call in backwards(call):
            return f"it calls `{name}` itself: gradients are needed in it"
        if name == "step" and isinstance(call.func, cst.Attribute) and "optim" in source.code(call.func.value).lower():
            return "it also trains: it calls the optimizer"
        if _NEEDS_GRADIENTS.search(name) and name not in ("no_grad", "set_grad_enabled") and "zero_grad" not in name:
            return f"`{name}` sounds as if it takes gradients"
    for one in below(place):
        if isinstance(one, cst.Attribute) and one.attr.value in ("grad", "requires_grad", "requires_grad_"):
            return f"it uses `.{one.attr.value}`: gradients are needed in it"
    if depth < 4:
        for call in calls(place):
            for inner in _bodies(source, called(call)):
                if inner is not place and (reason := _gradients_in(source, inner, depth=depth + 1)):
                    return f"it calls `{called(call)}`, and there: {reason}"
    return ""


def _bodies(source: Source, name: str) -> list[Node]:
    owner = local_class(source, name)
    if owner is not None:
        return [owner]
    return [one for one in local_functions(source, name) if one.name.value not in ("train", "eval", "step")]


def _model_is_given_away(source: Source, place: Node) -> str:
    """The name of a function of another file that gets an object which is called as a model here."""
    models = {dotted(call.func) for call in calls(place)} - {""}
    for call in calls(place):
        if any(dotted(arg.value) in models for arg in call.args):
            name, origin = called(call), qualified(source, call.func).partition(".")[0]
            if not local_functions(source, name) and origin not in ("torch", "numpy", "math") and name not in _LOOKS:
                return name or "a function"
    return ""


def _leaves_behind(source: Source, function: Function) -> str:
    """Why a value that a function stores outside of itself, other than its result, may go into a backward."""
    fed = feeding_backward(source)
    looked_up = bool({"getattr", "__dict__", "vars"} & words(source))
    outside = {
        name for one in below(function) if isinstance(one, cst.Global | cst.Nonlocal) for name, _ in binding(one)
    }
    for one in below(function):
        if isinstance(one, cst.Assign | cst.AugAssign) and not is_plain(one.value):
            for name, part in binding(one):
                kept = isinstance(part, cst.Attribute) or name in outside or not _is_own(function, name, one)
                if kept and (looked_up or key(source, part) in fed):
                    return f"line {source.line(one)} keeps `{name}`, which may go into a backward"
        if isinstance(one, cst.Call) and called(one) in _GIVES and isinstance(one.func, cst.Attribute) and one.args:
            into, root = one.func.value, dotted(one.func.value).partition(".")[0]
            own = [made for made in bindings(function, root) if isinstance(made, cst.Assign)]
            if not own and dotted(into) and not is_plain(one.args[-1].value):
                return f"line {source.line(one)} gives something to `{dotted(into)}`, which others see too"
    return ""


def _is_own(function: Function, name: str, writes: Node) -> bool:
    """Whether a name that a statement writes to is local to the function; the one in `CACHE["x"] = 1` is not."""
    targets = [one.target for one in writes.targets] if isinstance(writes, cst.Assign) else []
    if not any(isinstance(one, cst.Subscript) for one in targets):
        return True
    return any(isinstance(one, cst.Assign | cst.AnnAssign) and one is not writes for one in bindings(function, name))


def _result_is_needed(source: Source, function: Function) -> str:
    """Why what a function returns may go into a backward."""
    plain_names = {
        name
        for name in {n for one in below(function) for n, _ in binding(one)}
        if all(
            is_plain(one.value) or _is_count(one.value)
            for one in below(function)
            if isinstance(one, cst.Assign | cst.AugAssign | cst.AnnAssign)
            and one.value is not None
            and any(bound == name for bound, _ in binding(one))
        )
        and not any(isinstance(one, cst.Param) and one.name.value == name for one in below(function))
    }
    for one in below(function):
        if isinstance(one, cst.Return) and one.value is not None and not _plain_result(one.value, plain_names):
            name = function.name.value
            if class_of(source, function) is not None and name.startswith("__"):
                return "it is called in ways that this file does not show"
            fed = feeding_backward(source)
            if {name, f".{name}"} & fed:
                return f"what `{name}` returns may go into a backward"
            if not _is_called(source, name):
                return f"this file does not show what is done with the result of `{name}`"
    return ""


def _is_count(node: Node) -> bool:
    return isinstance(node, cst.Call) and called(node) in ("size", "numel")


def _plain_result(node: Node, names: set[str]) -> bool:
    if isinstance(node, cst.Name):
        return node.value in names
    if isinstance(node, cst.BinaryOperation):
        return _plain_result(node.left, names) and _plain_result(node.right, names)
    if isinstance(node, cst.Tuple | cst.List):
        return all(_plain_result(one.value, names) for one in node.elements)
    return is_plain(node)


def _is_called(source: Source, name: str) -> bool:
    return any(called(call) == name for call in calls(source.module))


def _read_outside(source: Source, place: Node, parts: set[str]) -> bool:
    """Whether a name that a loop binds is read outside of it before another loop or statement sets it."""
    start, end = source.span(place)
    for one in source.nodes:
        if not isinstance(one, cst.Name | cst.Attribute) or start <= source.span(one)[0] < end:
            continue
        if not dotted(one) or key(source, one) not in parts:
            continue
        above = list(source.ancestors(one))
        if any(part is one for node in above for _, part in binding(node)):
            continue
        loops = [node for node in above if isinstance(node, cst.For | cst.FunctionDef)]
        bound = any(name == dotted(one) for loop in loops for name, _ in _targets(loop))
        if not bound and not _is_set_before(source, one):
            return True
    return False


def _is_set_before(source: Source, use: Node) -> bool:
    """Whether a statement that always runs before a use, in the same round of its loop, sets the name."""
    name, child = dotted(use), use
    for above in source.ancestors(use):
        if isinstance(above, cst.IndentedBlock | cst.Module):
            for one in above.body:
                if one is child:
                    break
                inner = one.body.body if isinstance(one, cst.With) else [one]
                parts = [part for row in inner if isinstance(row, cst.SimpleStatementLine) for part in row.body]
                if any(bound == name for part in parts if isinstance(part, cst.Assign) for bound, _ in binding(part)):
                    return True
        if isinstance(above, cst.For | cst.While | cst.FunctionDef):
            return False
        child = above
    return False


def _targets(node: Node) -> list[tuple[str, Node]]:
    return list(binding(node)) if isinstance(node, cst.For) else []


def _change(site: RewriteSite) -> Proposal:
    source, place = site.source, site.node
    torch, indent = torch_name(source), source.indent(place)
    if isinstance(place, cst.FunctionDef):
        # the last decorator wraps first: gradients are off inside of all other decorators
        line = source.line(place.name)
        return site.change([insert_line(source, line, f"{indent}@{torch}.no_grad()")])
    moved = indented(source, place, step_of_indent(source))
    if moved is None:
        return site.refuse("the loop contains a string of several lines, which a new indentation would change")
    return site.change([insert_line(source, source.line(place), f"{indent}with {torch}.no_grad():"), *moved])


EVALUATION_NO_GRAD = Rewrite(ID, 11, Claim.EXACT, find)
