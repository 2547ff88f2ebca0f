"""Questions about a file's tree that several rewrites ask: names, scopes, loops, calls."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import libcst as cst

from gpudoc.fix.source import Node, Source, children_of

Function = cst.FunctionDef
LOOPS = (cst.For, cst.While)
# methods that return the same model
_SAME_MODEL = frozenset({"to", "cuda", "cpu", "train"})
_CONSTANTS = (cst.Integer, cst.Float, cst.SimpleString, cst.ConcatenatedString, cst.Imaginary)


def dotted(node: Node | None) -> str:
    """`a.b.c` for a chain of names, else ''."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        front = dotted(node.value)
        return f"{front}.{node.attr.value}" if front else ""
    return ""


@functools.lru_cache(maxsize=16)
def imported_names(source: Source) -> dict[str, str]:
    """The full name behind each name that an import binds anywhere in the file."""
    names: dict[str, str] = {}
    for node in source.nodes:
        if isinstance(node, cst.Import):
            for alias in node.names:
                full = dotted(alias.name)
                if alias.asname is not None:
                    names[dotted(alias.asname.name)] = full
                else:
                    first = full.split(".")[0]
                    names.setdefault(first, first)
        elif isinstance(node, cst.ImportFrom) and not isinstance(node.names, cst.ImportStar):
            front = "." * len(node.relative) + dotted(node.module)
            for alias in node.names:
                asname = alias.asname
                bound = dotted(asname.name) if asname is not None else dotted(alias.name)
                names[bound] = f"{front}.{dotted(alias.name)}"
    return names


def qualified(source: Source, node: Node | None) -> str:
    """The full name of a name or a chain, such as `torch.utils.data.DataLoader`; '' if no import binds it."""
    name = dotted(node)
    first, _, rest = name.partition(".")
    full = imported_names(source).get(first, "")
    if not full or first in rebound_imports(source):
        return ""
    return f"{full}.{rest}" if rest else full


@functools.lru_cache(maxsize=16)
def rebound_imports(source: Source) -> frozenset[str]:
    """Imported names that the file also assigns to, so that their meaning is unknown."""
    names = imported_names(source)
    return frozenset(
        name for node in source.nodes for name, _ in binding(node) if name in names and not is_import(node)
    )


def is_import(node: Node) -> bool:
    """Whether a statement is an import."""
    return isinstance(node, cst.Import | cst.ImportFrom)


def name_of_import(source: Source, full: str) -> str:
    """The name that this file uses for `torch` or another import; '' if it does not import it at its top level."""
    for statement in source.module.body:
        if isinstance(statement, cst.SimpleStatementLine) and any(is_import(part) for part in statement.body):
            for name, meaning in imported_names(source).items():
                if meaning == full and name not in rebound_imports(source):
                    return name
    return ""


def binding(node: Node) -> Iterator[tuple[str, Node]]:
    """The names (also `self.x`) that `node` itself binds, each with the part that binds it."""
    targets: list[Node] = []
    if isinstance(node, cst.Assign):
        targets = [one.target for one in node.targets]
    elif isinstance(node, cst.AugAssign | cst.AnnAssign | cst.NamedExpr | cst.For | cst.CompFor):
        targets = [node.target]
    elif isinstance(node, cst.WithItem):
        targets = [node.asname.name] if node.asname is not None else []
    elif isinstance(node, cst.ExceptHandler):
        targets = [node.name.name] if node.name is not None else []
    elif isinstance(node, cst.Param | cst.FunctionDef | cst.ClassDef):
        targets = [node.name]
    elif isinstance(node, cst.Del):
        targets = [node.target]
    elif isinstance(node, cst.Global | cst.Nonlocal):
        targets = [one.name for one in node.names]
    for target in targets:
        for part in leaves(target):
            name = dotted(part)
            if name:
                yield name, part


def leaves(target: Node) -> Iterator[Node]:
    """The single targets of `a, (b, *c)`; for a subscript, the indexed value."""
    if isinstance(target, cst.Tuple | cst.List):
        for element in target.elements:
            yield from leaves(element.value)
    elif isinstance(target, cst.Subscript):
        yield from leaves(target.value)
    else:
        yield target


def below(node: Node) -> Iterator[Node]:
    """`node` and all nodes in it, in the order of the text."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(children_of(top)))


def own(node: Node) -> Iterator[Node]:
    """Like `below`, but without the bodies of functions and classes that are defined in it."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        if top is node or not isinstance(top, cst.FunctionDef | cst.ClassDef | cst.Lambda):
            stack.extend(reversed(children_of(top)))


def enclosing(source: Source, node: Node, kind: type[Node] | tuple[type[Node], ...]) -> Node | None:
    """The nearest node of a kind around `node`."""
    return next((above for above in source.ancestors(node) if isinstance(above, kind)), None)


def function_of(source: Source, node: Node) -> Function | None:
    """The function that a statement runs in; None outside of functions."""
    found = enclosing(source, node, (cst.FunctionDef, cst.ClassDef, cst.Lambda))
    return found if isinstance(found, cst.FunctionDef) else None


def class_of(source: Source, function: Function) -> cst.ClassDef | None:
    """The class that a method is defined in."""
    found = enclosing(source, function, (cst.FunctionDef, cst.ClassDef))
    return found if isinstance(found, cst.ClassDef) else None


def scope_of(source: Source, node: Node) -> Node:
    """The function that a statement runs in, or the module."""
    return function_of(source, node) or source.module


def loops_around(source: Source, node: Node) -> list[cst.For | cst.While]:
    """The loops around `node` in the same function, from the inside out, without those that hold it in their `else`."""
    found: list[cst.For | cst.While] = []
    below_it: Node = node
    for above in source.ancestors(node):
        if isinstance(above, cst.FunctionDef | cst.ClassDef | cst.Lambda):
            break
        if isinstance(above, cst.For | cst.While) and below_it is above.body:
            found.append(above)
        below_it = above
    return found


def calls(node: Node) -> Iterator[cst.Call]:
    """All calls in a node."""
    return (one for one in below(node) if isinstance(one, cst.Call))


def called(call: cst.Call) -> str:
    """The last name of the called expression: `backward` in `scaler.scale(loss).backward()`."""
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value
    return call.func.value if isinstance(call.func, cst.Name) else ""


def argument(call: cst.Call, keyword: str, position: int | None = None) -> cst.Arg | None:
    """The argument of a call by `keyword` or at `position`, counted from 0."""
    for index, arg in enumerate(call.args):
        if arg.keyword is not None and arg.keyword.value == keyword:
            return arg
        if arg.keyword is None and not arg.star and index == position and not any(a.star for a in call.args[:index]):
            return arg
    return None


def is_true(node: Node | None) -> bool:
    """Whether this is the word True."""
    return isinstance(node, cst.Name) and node.value == "True"


def is_false(node: Node | None) -> bool:
    """Whether this is the word False."""
    return isinstance(node, cst.Name) and node.value == "False"


def is_whole(node: Node) -> bool:
    """Whether this is `:` in a subscript."""
    return isinstance(node, cst.Slice) and node.lower is None and node.upper is None and node.step is None


def is_literal(node: Node) -> bool:
    """Whether it is a number, a text or a constant word, also with a sign or in tuples and lists."""
    if isinstance(node, cst.UnaryOperation):
        return is_literal(node.expression)
    if isinstance(node, cst.BinaryOperation):
        return is_literal(node.left) and is_literal(node.right)
    if isinstance(node, cst.Tuple | cst.List):
        return all(is_literal(element.value) for element in node.elements)
    return isinstance(node, _CONSTANTS) or (isinstance(node, cst.Name) and node.value in ("True", "False", "None"))


def uses(source: Source, node: Node, name: str) -> list[Node]:
    """The uses of `name` (`x` or `self.x`) in `node`, without attributes, keywords and parameters of that name."""
    found: list[Node] = []
    for one in below(node):
        if not isinstance(one, cst.Name | cst.Attribute) or dotted(one) != name:
            continue
        above = source.parent(one)
        if isinstance(above, cst.Attribute) and above.attr is one:
            continue
        if isinstance(above, cst.Arg) and above.keyword is one:
            continue
        if isinstance(above, cst.Param) and above.name is one:
            continue
        found.append(one)
    return found


def bindings(node: Node, name: str) -> list[Node]:
    """The statements in `node` that bind or change `name`; a subscript of it counts."""
    return [one for one in below(node) if any(bound == name for bound, _ in binding(one))]


def local_class(source: Source, name: str) -> cst.ClassDef | None:
    """The only class of this file with this name; None if there is none or more than one."""
    found = [one for one in source.nodes if isinstance(one, cst.ClassDef) and one.name.value == name]
    return found[0] if len(found) == 1 else None


def class_of_call(source: Source, call: cst.Call) -> cst.ClassDef | None:
    """The class of this file whose instance a call makes."""
    name = call.func.value if isinstance(call.func, cst.Name) else ""
    return local_class(source, name) if name and name not in imported_names(source) else None


def model_is_shown(source: Source, name: str) -> bool:
    """Whether a name is only set to models whose classes are in this file or in `torch.nn`.

    `model = model.to(device)` counts as the same model.
    """
    made = [one for one in bindings(source.module, name) if isinstance(one, cst.Assign) and not _moves(one, name)]
    return bool(made) and all(
        isinstance(one.value, cst.Call)
        and any(
            class_of_call(source, inner) is not None or qualified(source, inner.func).startswith("torch.nn.")
            for inner in calls(one.value)
        )
        for one in made
    )


def _moves(one: cst.Assign, name: str) -> bool:
    """Whether a statement sets a name to the same model, as in `model = model.to(device).train()`."""
    value = one.value
    while isinstance(value, cst.Call) and called(value) in _SAME_MODEL and isinstance(value.func, cst.Attribute):
        value = value.func.value
    return value is not one.value and dotted(value) == name


def binds(source: Source, use: Node) -> bool:
    """Whether a use of a name sets it."""
    return any(part is use for above in source.ancestors(use) for _, part in binding(above))


def parameters(function: Function) -> frozenset[str]:
    """The names of a function's parameters."""
    return frozenset(one.name.value for one in below(function.params) if isinstance(one, cst.Param))


def local_functions(source: Source, name: str) -> list[Function]:
    """The functions and methods of this file with this name."""
    return [one for one in source.nodes if isinstance(one, cst.FunctionDef) and one.name.value == name]


def methods(owner: cst.ClassDef) -> dict[str, Function]:
    """The methods that a class defines itself."""
    return {one.name.value: one for one in owner.body.body if isinstance(one, cst.FunctionDef)}


def bases(source: Source, owner: cst.ClassDef) -> list[str]:
    """The last names of a class's bases, and of their bases if they are in this file."""
    found: list[str] = []
    for base in owner.bases:
        name = dotted(base.value).rsplit(".", 1)[-1]
        found.append(name)
        above = local_class(source, name)
        if above is not None and above is not owner and len(found) < 20:
            found += bases(source, above)
    return found


def words(source: Source) -> frozenset[str]:
    """Every name and attribute that stands in the file."""
    return _words(source)


@functools.lru_cache(maxsize=16)
def _words(source: Source) -> frozenset[str]:
    return frozenset(node.value for node in source.nodes if isinstance(node, cst.Name))
