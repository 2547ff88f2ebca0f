"""Which values of a file may reach a backward, found by following names; if in doubt, they do."""

from __future__ import annotations

import functools

import libcst as cst

from gpudoc.fix.source import Node, Source
from gpudoc.fix.tree import (
    Function,
    below,
    binding,
    called,
    calls,
    dotted,
    function_of,
    leaves,
    local_functions,
)

# methods that add to their container
FILLING = frozenset({"append", "extend", "insert", "add", "update", "appendleft", "setdefault", "put"})
# functions that keep no graph of their argument alive and call no backward
HARMLESS = frozenset(
    {
        "print",
        "float",
        "int",
        "len",
        "str",
        "repr",
        "format",
        "isnan",
        "isinf",
        "isfinite",
        "add_scalar",
        "add_scalars",
        "log",
        "info",
        "debug",
        "warning",
        "error",
        "critical",
        "write",
        "set_postfix",
        "set_postfix_str",
        "set_description",
        "update",
        "append",
        "extend",
        "sum",
        "mean",
        "stack",
        "cat",
        "tensor",
        "max",
        "min",
        "abs",
        "sqrt",
        "exp",
        "sorted",
        "list",
        "tuple",
        "zip",
        "enumerate",
        "join",
        "as_tensor",
        "dump",
        "dumps",
        "log_metrics",
    }
)
_DIFFERENTIATES = frozenset({"grad", "jacobian", "hessian", "vjp", "jvp", "vmap", "functional_call", "gradgradcheck"})
_PLAIN_METHODS = frozenset({"item", "tolist", "numpy", "detach"})
# x.float() keeps the graph, float(x) does not
_PLAIN_FUNCTIONS = frozenset({"float", "int", "len", "bool", "str", "format"})


def is_backward(call: cst.Call) -> bool:
    """Whether a call starts a backward, under any name: loss.backward(), accelerator.backward(loss), grad(...)."""
    name = called(call)
    return "backward" in name.lower() or name in _DIFFERENTIATES


def backwards(node: Node) -> list[cst.Call]:
    """The calls in `node` that start a backward."""
    return [call for call in calls(node) if is_backward(call)]


@functools.lru_cache(maxsize=16)
def _locals(function: Function) -> frozenset[str]:
    bound: set[str] = set()
    outside: set[str] = set()
    for node in below(function):
        if isinstance(node, cst.Global | cst.Nonlocal):
            outside.update(one.name.value for one in node.names)
        elif isinstance(node, cst.Param):
            bound.add(node.name.value)
        elif isinstance(node, cst.Name):
            continue
        else:
            bound.update(_bound(node))
    return frozenset(bound - outside)


def _bound(node: Node) -> set[str]:
    targets: list[Node] = []
    if isinstance(node, cst.Assign):
        targets = [one.target for one in node.targets]
    elif isinstance(node, cst.AugAssign | cst.AnnAssign | cst.NamedExpr | cst.For | cst.CompFor):
        targets = [node.target]
    elif isinstance(node, cst.WithItem) and node.asname is not None:
        targets = [node.asname.name]
    # `TABLE["x"] = 1` does not bind TABLE: it writes into an existing table
    whole = [one for target in targets for one in below(target) if isinstance(one, cst.Subscript)]
    within = {name for one in whole for name in leaves(one)}
    return {
        part.value for target in targets for part in leaves(target) if isinstance(part, cst.Name) and part not in within
    }


def key(source: Source, node: Node) -> str:
    """One name for a variable of one function, for a name of the module, or for an attribute of anything."""
    if isinstance(node, cst.Attribute):
        return f".{node.attr.value}"
    assert isinstance(node, cst.Name)
    function = function_of(source, node)
    if function is not None and node.value in _locals(function):
        return f"{function.name.value}:{node.value}"
    return node.value


def keys_in(source: Source, node: Node) -> set[str]:
    """The variables that a value is made of."""
    found: set[str] = set()
    for one in below(node):
        if not isinstance(one, cst.Name | cst.Attribute):
            continue
        above = source.parent(one)
        if isinstance(one, cst.Name) and (
            (isinstance(above, cst.Attribute) and above.attr is one)
            or (isinstance(above, cst.Arg) and above.keyword is one)
        ):
            continue
        found.add(key(source, one))
    return found


@functools.lru_cache(maxsize=8)
def feeding_backward(source: Source) -> frozenset[str]:
    """The variables that may be part of what a backward is called on, anywhere in the file."""
    edges: dict[str, set[str]] = {}
    roots: set[str] = set()
    for node in source.nodes:
        if isinstance(node, cst.Call):
            if is_backward(node):
                roots |= keys_in(source, node)
            _call_edges(source, node, edges)
        elif isinstance(node, cst.Return | cst.Yield) and isinstance(node.value, cst.BaseExpression):
            function = function_of(source, node)
            if function is not None and not is_plain(node.value):
                name = function.name.value
                for target in (name, f".{name}"):
                    edges.setdefault(target, set()).update(keys_in(source, node.value))
        elif isinstance(node, cst.Assign | cst.AugAssign | cst.AnnAssign | cst.NamedExpr) and node.value is not None:
            if not is_plain(node.value):
                _edge(source, node, node.value, edges)
        elif isinstance(node, cst.For | cst.CompFor):
            _edge(source, node, node.iter, edges)
    seen: set[str] = set()
    waiting = list(roots)
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting.extend(edges.get(one, ()))
    return frozenset(seen)


def hidden_backward(source: Source) -> int:
    """The line that looks up an attribute by a name that may be `backward`; 0 if there is none."""
    for call in calls(source.module):
        if called(call) in ("getattr", "methodcaller", "attrgetter") and call.args:
            name = call.args[-1 if called(call) != "getattr" else min(1, len(call.args) - 1)].value
            plain = isinstance(name, cst.SimpleString)
            if not plain or "back" in source.code(name):
                return source.line(call)
    return 0


def _edge(source: Source, node: Node, value: Node, edges: dict[str, set[str]]) -> None:
    for _, part in binding(node):
        edges.setdefault(key(source, part), set()).update(keys_in(source, value))


def _call_edges(source: Source, call: cst.Call, edges: dict[str, set[str]]) -> None:
    given = set().union(*(keys_in(source, arg) for arg in call.args)) if call.args else set()
    if isinstance(call.func, cst.Attribute) and called(call) in FILLING:
        for part in leaves(call.func.value):
            if isinstance(part, cst.Name | cst.Attribute):
                edges.setdefault(key(source, part), set()).update(given)
    for function in local_functions(source, called(call)):
        for param in below(function.params):
            if isinstance(param, cst.Param):
                edges.setdefault(f"{function.name.value}:{param.name.value}", set()).update(given)


def is_plain(node: Node) -> bool:
    """Whether a value certainly holds no graph: numbers, texts, results of `.item()` or `.detach()`."""
    if isinstance(node, cst.Call):
        return called(node) in (_PLAIN_METHODS if isinstance(node.func, cst.Attribute) else _PLAIN_FUNCTIONS)
    if isinstance(node, cst.BinaryOperation):
        return is_plain(node.left) and is_plain(node.right)
    if isinstance(node, cst.UnaryOperation):
        return is_plain(node.expression)
    if isinstance(node, cst.Tuple | cst.List):
        return all(is_plain(element.value) for element in node.elements)
    if isinstance(node, cst.Attribute):
        return node.attr.value in ("data", "shape", "dtype", "device")
    return isinstance(node, cst.Integer | cst.Float | cst.SimpleString | cst.FormattedString) or dotted(node) in (
        "True",
        "False",
        "None",
    )


def handed_to(source: Source, node: Node) -> str:
    """The last name of the nearest call that takes `node` as an argument; '' if there is none."""
    below_it = node
    for above in source.ancestors(node):
        if isinstance(above, cst.BaseStatement | cst.BaseSmallStatement):
            return ""
        if isinstance(above, cst.Call) and below_it is not above.func:
            return called(above) or "a function"
        below_it = above
    return ""


_OFF = frozenset({"no_grad", "inference_mode", "set_grad_enabled", "enable_grad"})


def is_without_grad(source: Source, statement: Node) -> bool:
    """Whether the code around a statement already turns gradients on or off."""
    for above in source.ancestors(statement):
        if isinstance(above, cst.With) and any(_decides(item.item) for item in above.items):
            return True
        if isinstance(above, cst.FunctionDef):
            if any(_decides(one.decorator) for one in above.decorators):
                return True
            return any(called(call) == "set_grad_enabled" for call in calls(above))
    return False


def _decides(node: Node) -> bool:
    return any(isinstance(one, cst.Name) and one.value in _OFF for one in below(node))
