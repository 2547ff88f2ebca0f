"""Whether some lines give the same value on every run, and on which plain values that depends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from gpudoc.fix.rewrites.dependence import is_set_once, not_constant
from gpudoc.fix.rewrites.vocabulary import CHANGING, DRAWS, FILLS, FRESH, PLAIN_CALLS, PURE, PURE_MORE
from gpudoc.fix.source import Node, Source
from gpudoc.fix.tree import (
    Function,
    argument,
    below,
    binding,
    bindings,
    called,
    calls,
    class_of,
    dotted,
    enclosing,
    function_of,
    is_false,
    is_literal,
    leaves,
    local_functions,
    loops_around,
    parameters,
    qualified,
    words,
)

_NOT_PLAIN = (
    cst.Lambda, cst.Await, cst.Yield, cst.NamedExpr, cst.Global, cst.Nonlocal, cst.Try, cst.With, cst.ClassDef, cst.Del,
    cst.Import, cst.ImportFrom, cst.Raise, cst.While,
)  # fmt: skip
_SIZES = frozenset({"size", "dim", "numel", "__len__"})
_FACTS = frozenset({"device", "dtype", "ndim"})
_PLAIN_TYPES = frozenset({"int", "float", "bool", "str"})
_DEPTH = 3
# modules whose functions and constants are known
_KNOWN = frozenset({"torch", "numpy", "math", "itertools"})


@dataclass(slots=True)
class PureLines:
    """Looks at nodes of one place: `reason` says why they may give another value the next time; '' if they do not.

    `keys` are the source texts of the plain values, sizes and devices that differ from call to call.
    """

    source: Source
    place: Node
    """Where the lines stand: their names are those of this statement's function."""
    keys: list[str] = field(default_factory=list)
    reason: str = ""
    calls_local: bool = False
    """Whether a function of this file is called."""
    stays: bool = False
    """The lines stay where they are, so that autocast is on there as it was."""
    _depth: int = 0

    def look(self, nodes: Sequence[Node], given: frozenset[str] = frozenset()) -> PureLines:
        """Check `nodes` and return self; `given` are names of plain values, such as a function's parameters."""
        bound = {name for node in nodes for one in below(node) for name, _ in binding(one) if "." not in name}
        for node in nodes:
            skipped: set[Node] = set()
            for one in below(node):
                if self.reason:
                    return self
                if one not in skipped:
                    skipped.update(self._one(one, nodes, frozenset(bound), given))
        return self

    def _refuse(self, reason: str) -> None:
        self.reason = self.reason or reason

    def _one(self, one: Node, nodes: Sequence[Node], bound: frozenset[str], given: frozenset[str]) -> list[Node]:
        """Check one node; returns the nodes in it that need no further check."""
        if isinstance(one, _NOT_PLAIN) or (isinstance(one, cst.FunctionDef) and one not in nodes):
            self._refuse("it is more than plain values")
            return []
        if isinstance(one, cst.Annotation):
            return list(below(one))
        multiplies = isinstance(one, cst.BinaryOperation) and isinstance(one.operator, cst.MatrixMultiply)
        if multiplies and not self.stays:
            self._refuse("a matrix product may be rounded in another way where autocast is on")
            return []
        if isinstance(one, cst.Assign | cst.AugAssign | cst.AnnAssign):
            self._writes(one, nodes)
        if isinstance(one, cst.Call):
            self._call(one, nodes)
        if isinstance(one, cst.BaseExpression) and self.is_size(one, bound | given):
            self._add(one)
            return list(below(one))
        if isinstance(one, cst.Name | cst.Attribute) and dotted(one):
            return self._name(one, bound, given)
        return []

    def _add(self, one: Node) -> None:
        text = self.source.code(one)
        if text not in self.keys:
            self.keys.append(text)

    def is_size(self, one: cst.BaseExpression, known: frozenset[str]) -> bool:
        """Whether it is `x.size(1)`, `x.shape[1]`, `len(x)` or `x.device` of a variable that the lines do not make."""
        subject: Node | None = None
        if isinstance(one, cst.Call) and isinstance(one.func, cst.Attribute) and one.func.attr.value in _SIZES:
            subject = one.func.value if len(one.args) == 1 and is_literal(one.args[0].value) else None
        elif isinstance(one, cst.Call) and dotted(one.func) == "len" and len(one.args) == 1:
            subject = one.args[0].value
        elif isinstance(one, cst.Subscript) and isinstance(one.value, cst.Attribute):
            plain = len(one.slice) == 1 and isinstance(one.slice[0].slice, cst.Index)
            subject = one.value.value if plain and one.value.attr.value == "shape" else None
        elif isinstance(one, cst.Attribute) and one.attr.value in _FACTS:
            subject = one.value
        name = dotted(subject)
        return bool(name) and name.partition(".")[0] not in known and not qualified(self.source, subject)

    def _name(self, one: cst.Name | cst.Attribute, bound: frozenset[str], given: frozenset[str]) -> list[Node]:
        source, name, above = self.source, dotted(one), self.source.parent(one)
        inner = [part for part in below(one) if part is not one]
        first = name.partition(".")[0]
        if isinstance(above, cst.Arg) and above.keyword is one:
            return inner
        if isinstance(above, cst.Attribute) and above.attr is one:
            # `rsqrt` of `weights.sum(1).rsqrt()`
            return inner
        if isinstance(above, cst.Param | cst.FunctionDef) and above.name is one:
            return inner
        if isinstance(above, cst.Call) and above.func is one:
            # the object of the method call is checked separately
            on = one.value if isinstance(one, cst.Attribute) else None
            if on is not None and not qualified(source, one) and dotted(on) != "self":
                self._name(on, bound, given) if isinstance(on, cst.Name | cst.Attribute) else None
            return inner
        full = qualified(source, one)
        if full and full.partition(".")[0] not in _KNOWN:
            self._refuse(f"`{name}` is of another file")
            return []
        if first in bound or first in given or full or name in PLAIN_CALLS or is_literal(one):
            return inner
        reason = self._why_not_fixed(name)
        if reason and self._is_plain_local(name):
            self._add(one)
        elif reason:
            self._refuse(reason)
        return inner

    def _why_not_fixed(self, name: str) -> str:
        source, parts = self.source, name.split(".")
        if len(parts) > 1:
            if parts[0] == "self" and not is_set_once(source, self.place, name):
                return f"it depends on `{name}`, which may be another value in the next step"
            if len(parts) > 2 and any(b.split(".")[-1] == parts[-1] for n in source.nodes for b, _ in binding(n)):
                return f"`{name}` may be changed between two steps"
            for call in calls(source.module):
                on = call.func.value if isinstance(call.func, cst.Attribute) else None
                method = called(call)
                if dotted(on).endswith(f".{parts[1]}") and (method in CHANGING or method.endswith("_")):
                    return f"line {source.line(call)} changes `{name}`"
            if parts[0] == "self":
                return ""
        reason = not_constant(source, self.place, name)
        return "" if reason and _is_fixed(source, name, 0) else reason

    def _is_plain_local(self, name: str) -> bool:
        """Whether a variable of the same function is a size that is set once, or a parameter annotated as a number."""
        source, function = self.source, function_of(self.source, self.place)
        made = [one for one in bindings(function or source.module, name) if not isinstance(one, cst.CompFor)]
        if len(made) != 1:
            return False
        one = made[0]
        if isinstance(one, cst.Param):
            if one.annotation is not None:
                return dotted(one.annotation.annotation) in _PLAIN_TYPES
            # an argument of `range` is a number
            rounds = [call for call in calls(function or source.module) if dotted(call.func) == "range"]
            return any(dotted(arg.value) == name for call in rounds for arg in call.args)
        if not isinstance(one, cst.Assign) or len(one.targets) != 1:
            return False
        if isinstance(one.targets[0].target, cst.Tuple):
            shape = one.value.func if isinstance(one.value, cst.Call) and not one.value.args else one.value
            return isinstance(shape, cst.Attribute) and shape.attr.value in ("shape", "size")
        if isinstance(one.targets[0].target, cst.Name):
            inner = PureLines(source, self.place)
            return isinstance(one.value, cst.BaseExpression) and _is_arithmetic(inner, one.value)
        return False

    def _writes(self, one: cst.Assign | cst.AugAssign | cst.AnnAssign, nodes: Sequence[Node]) -> None:
        targets = [two.target for two in one.targets] if isinstance(one, cst.Assign) else [one.target]
        for target in targets:
            for part in leaves(target):
                within = target is not part and not isinstance(target, cst.Tuple | cst.List)
                if not isinstance(part, cst.Name):
                    self._refuse(f"line {self.source.line(one)} sets `{self.source.code(target)}`")
                elif (within or isinstance(one, cst.AugAssign)) and not _is_fresh(self.source, nodes, part.value):
                    self._refuse(f"line {self.source.line(one)} changes `{part.value}`, which it did not make")

    def _call(self, call: cst.Call, nodes: Sequence[Node]) -> None:
        source, name = self.source, called(call)
        full = qualified(source, call.func)
        if any(one.star for one in call.args) or argument(call, "out") is not None:
            return self._refuse(f"what `{name or 'a function'}` does with its arguments cannot be seen")
        grad = argument(call, "requires_grad")
        if grad is not None and not is_false(grad.value):
            return self._refuse("it is a tensor that is trained")
        if (local := self._local(call)) is not None:
            return self._into(local)
        if DRAWS.search(name) or ".random." in f"{full}.":
            return self._refuse(f"`{name}` draws random numbers, or gives memory as it happens to be")
        if name in FILLS and isinstance(call.func, cst.Attribute) and not full:
            filled = call.func.value
            if not (isinstance(filled, cst.Name) and _is_fresh(source, nodes, filled.value)):
                return self._refuse(f"line {source.line(call)} changes `{source.code(filled)}` in place")
            return None
        front = full.partition(".")[0]
        known = (name in PURE or name in PURE_MORE or front == "math") and (not full or front in _KNOWN)
        plain = isinstance(call.func, cst.Name) and not full and name in PLAIN_CALLS
        plain = plain and not bindings(source.module, name)
        if not plain and not (known and (full or isinstance(call.func, cst.Attribute))):
            self._refuse(f"what `{name or 'a function'}` gives may be another thing each time")
        return None

    def _local(self, call: cst.Call) -> Function | None:
        """The one function of this file that a call means: `f(...)`, or `self.f(...)` in the same class."""
        found = local_functions(self.source, called(call))
        if len(found) != 1:
            return None
        function, owner = found[0], class_of(self.source, found[0])
        if isinstance(call.func, cst.Name):
            return function if owner is None and self.source.parent(function) is self.source.module else None
        here = function_of(self.source, self.place)
        mine = class_of(self.source, here) if here is not None else None
        return function if dotted(call.func) == f"self.{function.name.value}" and owner is mine else None

    def _into(self, function: Function) -> None:
        self.calls_local = True
        if self._depth >= _DEPTH or len(bindings(self.source.module, function.name.value)) != 1:
            return self._refuse(f"what `{function.name.value}` gives may be another thing each time")
        if any(dotted(one.decorator) != "staticmethod" for one in function.decorators):
            return self._refuse(f"`{function.name.value}` is wrapped by something")
        if function.asynchronous is not None or any(isinstance(one, cst.Yield) for one in below(function)):
            return self._refuse(f"`{function.name.value}` gives its values one by one, or later")
        params = parameters(function)
        first = function.body.body[0] if function.body.body else function.body
        inner = PureLines(self.source, first, stays=self.stays, _depth=self._depth + 1).look(
            [function.body], params - {"self"}
        )
        if not inner.reason and any(key.partition(".")[0] not in params for key in inner.keys):
            inner.reason = f"`{function.name.value}` reads what it was not given"
        self.reason = self.reason or inner.reason
        return None


def _is_fresh(source: Source, nodes: Sequence[Node], name: str) -> bool:
    """Whether the lines themselves make the value of a name, so that they may change it."""
    made = [
        one
        for node in nodes
        for one in below(node)
        if isinstance(one, cst.Assign | cst.AnnAssign)
        and any(bound == name and isinstance(part, cst.Name) for bound, part in _whole(one))
    ]
    values = [one.value for one in made if one.value is not None]
    return any(_makes(source, one, "") for one in values) and all(_makes(source, one, name) for one in values)


def _whole(one: cst.Assign | cst.AnnAssign) -> Iterator[tuple[str, Node]]:
    """The names that a statement sets, without names of containers whose items it sets."""
    for target in [two.target for two in one.targets] if isinstance(one, cst.Assign) else [one.target]:
        if isinstance(target, cst.Name):
            yield target.value, target


def _makes(source: Source, value: Node, own: str) -> bool:
    """Whether a value is a new one; `table = table.t()` is as new as `table`."""
    if isinstance(value, cst.Name) and value.value == own:
        return True
    if isinstance(value, cst.List | cst.ListComp | cst.BinaryOperation) or is_literal(value):
        return True
    if not isinstance(value, cst.Call):
        return False
    if qualified(source, value.func).partition(".")[0] in ("torch", "numpy"):
        return called(value) in FRESH
    inner = value.func.value if isinstance(value.func, cst.Attribute) else None
    return called(value) == "list" or (inner is not None and called(value) in PURE and _makes(source, inner, own))


def _is_fixed(source: Source, name: str, depth: int) -> bool:
    """Whether a name of the module is set once to numbers, or to a table of them that nothing changes."""
    if depth > _DEPTH or "." in name:
        return False
    made = bindings(source.module, name)
    if len(made) != 1 or not isinstance(made[0], cst.Assign) or enclosing(source, made[0], (cst.FunctionDef, cst.For)):
        return False
    for use in (one for one in source.nodes if isinstance(one, cst.Name) and one.value == name):
        above = source.parent(use)
        if isinstance(above, cst.Attribute) and above.value is use:
            return False
        handed = isinstance(above, cst.Arg) and above.keyword is not use
        outer = source.parent(above) if isinstance(above, cst.Arg) else None
        if handed and not (isinstance(outer, cst.Call) and called(outer) in PLAIN_CALLS):
            return False
    value = made[0].value
    if isinstance(value, cst.Dict):
        return all(isinstance(one, cst.DictElement) and is_literal(one.value) for one in value.elements)
    for one in below(value):
        if isinstance(one, cst.Name) and not _is_fixed(source, one.value, depth + 1):
            return False
        if isinstance(one, cst.Call | cst.Attribute | cst.Lambda):
            return False
    return True


def _is_arithmetic(lines: PureLines, value: cst.BaseExpression) -> bool:
    """Whether a value is made of sizes and constants by arithmetic alone."""
    plain = {*_SIZES, "len", "int", "min", "max"}
    if any(called(one) not in plain for one in calls(value)):
        return False
    sizes = any(lines.is_size(one, frozenset()) for one in below(value) if isinstance(one, cst.BaseExpression))
    return sizes and not lines.look([value]).reason


def other_types(source: Source) -> str:
    """Why the same lines may give tensors of another kind in another step; '' if nothing in the file does that."""
    for word in ("inference_mode", "compile", "script", "DataParallel", "fork_rng", "vmap"):
        if word in words(source):
            return f"`{word}` in this file: what is kept may not fit everywhere"
    for one in source.nodes:
        if isinstance(one, cst.WithItem) and isinstance(one.item, cst.Call) and called(one.item) == "device":
            return f"line {source.line(one)} says where tensors are made"
        sets = isinstance(one, cst.Call) and called(one).startswith("set_default_")
        if sets and (loops_around(source, one) or function_of(source, one)):
            return f"line {source.line(one)} changes what torch makes tensors of"
    return ""
