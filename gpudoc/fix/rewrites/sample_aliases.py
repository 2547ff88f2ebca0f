"""Follows an object that all samples would share, with all of its parts: may anything change it?

Only operations that are known to read or to copy are allowed. Returned parts are listed: the caller decides on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from gpudoc.fix.rewrites.vocabulary import PARTS_OF_DATA
from gpudoc.fix.source import Node, Source
from gpudoc.fix.tree import (
    argument,
    below,
    binds,
    called,
    class_of,
    dotted,
    function_of,
    leaves,
    qualified,
    scope_of,
    uses,
)


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# the results of these share nothing with their arguments
_COPIES = _set("""
    torch.tensor torch.LongTensor torch.FloatTensor torch.IntTensor torch.Tensor torch.stack torch.cat numpy.stack
    numpy.concatenate copy.deepcopy
""")
_PLAIN = _set("len int float str bool sum isinstance print range any all repr hash abs round ord")
_COPYING = _set("""
    clone tolist item sum mean std var count index lower upper strip rstrip lstrip split rsplit splitlines encode
    startswith endswith format join argmax argmin nonzero numel dim isdigit find title replace
""")
# the results of these are or hold their arguments
_SHARES = _set("list tuple dict set sorted reversed enumerate zip iter next min max")
_SHARING = _set("""
    view reshape t permute transpose squeeze unsqueeze flatten ravel float long int double half bool to numpy get items
    values keys contiguous expand narrow select astype copy detach cpu type
""")
_VALUES = _set("shape dtype ndim device size nbytes")
_HOLDING = _set("append extend insert add update")
_NUMPY_WRITES = _set("copyto put place putmask fill_diagonal put_along_axis frombuffer nditer")
_MORE_THAN_TWO = _set("where pad full interp percentile quantile")
_PASSES_ON = (
    cst.Element, cst.StarredElement, cst.DictElement, cst.StarredDictElement, cst.Tuple, cst.List, cst.Dict, cst.Set,
    cst.BooleanOperation, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp, cst.Slice,
)  # fmt: skip
_ENDS = (
    cst.Expr, cst.If, cst.While, cst.Assert, cst.FormattedStringExpression, cst.Comparison, cst.ComparisonTarget,
    cst.UnaryOperation, cst.Raise, cst.CompIf, cst.Index,
)  # fmt: skip
# these make one list of two, which holds the same items
_JOINS = (cst.Add, cst.Multiply, cst.BitOr)


@dataclass(slots=True)
class SharedParts:
    """Follows `name`, set by `statement`, and everything that may be a part of it through one function."""

    source: Source
    scope: Node
    statement: Node
    name: str
    reason: str = ""
    """Why something may change it; '' where nothing does."""
    returned: tuple[Node, ...] = ()
    """Where a part of it is given back."""
    _names: list[str] = field(default_factory=list)

    def follow(self) -> SharedParts:
        """Follow all uses and return self."""
        self._names = [self.name]
        for name in self._names:
            for one in below(self.scope):
                if not isinstance(one, cst.Name) or one.value != name or self.reason:
                    continue
                above = self.source.parent(one)
                if (isinstance(above, cst.Attribute) and above.attr is one) or isinstance(above, cst.Param):
                    continue
                if not (isinstance(above, cst.Arg) and above.keyword is one):
                    self._use(one)
        return self

    def _refuse(self, node: Node, what: str) -> None:
        self.reason = self.reason or f"line {self.source.line(node)} {what}"

    def _use(self, name: cst.Name) -> None:
        for above in self.source.ancestors(name):
            if above is self.scope:
                break
            if isinstance(above, cst.FunctionDef | cst.Lambda):
                return self._refuse(name, f"uses `{name.value}` in a function inside of this one")
        place = self.source.parent(name)
        if isinstance(place, cst.Global | cst.Nonlocal | cst.NameItem):
            return self._refuse(name, f"lets others see `{name.value}`")
        if isinstance(place, cst.AugAssign) and place.target is name:
            return self._refuse(name, f"sets or changes `{name.value}` again")
        if self._is_bound(name):
            if name.value == self.name and not self._is_own(name):
                self._refuse(name, f"sets or changes `{name.value}` again")
            return None
        return self._climb(name)

    def _is_own(self, node: Node) -> bool:
        return any(above is self.statement for above in self.source.ancestors(node))

    def _is_bound(self, name: cst.Name) -> bool:
        """Whether this use sets the name to another value, which does not change the old one."""
        node: Node | None = name
        for above in self.source.ancestors(name):
            if isinstance(above, cst.Element | cst.Tuple | cst.List | cst.StarredElement):
                node = above
                continue
            if isinstance(above, cst.AssignTarget | cst.Del):
                return True
            return isinstance(above, cst.For | cst.CompFor | cst.AnnAssign | cst.NamedExpr) and above.target is node
        return False

    def _taint(self, target: Node) -> None:
        for part in leaves(target):
            node = part.value if isinstance(part, cst.StarredElement) else part
            if isinstance(node, cst.Name):
                if node.value not in self._names:
                    self._names.append(node.value)
            else:
                self._refuse(target, f"keeps a part of `{self.name}` in `{self.source.code(target)}`")

    def _climb(self, node: Node) -> None:
        """Decide whether a value is read, copied, passed on, or may be changed."""
        above = self.source.parent(node)
        whole = isinstance(node, cst.Name) and node.value == self.name
        if whole and isinstance(above, cst.Return | cst.Element | cst.DictElement | cst.Assign):
            return self._refuse(node, f"hands `{self.name}` on, and it may be changed there")
        if isinstance(above, cst.Attribute):
            return self._attribute(above)
        if isinstance(above, cst.Subscript):
            return self._subscript(above)
        if isinstance(above, cst.Arg):
            call = self.source.parent(above)
            return self._argument(call, above) if isinstance(call, cst.Call) else self._refuse(node, "hands it on")
        if isinstance(above, cst.Assign):
            for target in above.targets:
                self._taint(target.target)
            return None
        if isinstance(above, cst.AnnAssign | cst.AugAssign):
            return self._taint(above.target)
        if isinstance(above, cst.NamedExpr):
            self._taint(above.target)
            return self._climb(above)
        if isinstance(above, cst.For | cst.CompFor):
            return self._taint(above.target)
        if isinstance(above, cst.BinaryOperation):
            return self._climb(above) if isinstance(above.operator, _JOINS) else None
        if isinstance(above, cst.IfExp):
            return None if above.test is node else self._climb(above)
        if isinstance(above, cst.Return):
            self.returned = (*self.returned, above)
            return None
        if isinstance(above, _PASSES_ON):
            return self._climb(above)
        return None if isinstance(above, _ENDS) else self._refuse(node, f"hands `{self.name}` on")

    def _attribute(self, attribute: cst.Attribute) -> None:
        above, name = self.source.parent(attribute), attribute.attr.value
        if isinstance(above, cst.Call) and above.func is attribute:
            if any(argument(above, word) is not None for word in ("inplace", "out", "copy", "non_blocking")):
                return self._refuse(above, f"may change a part of `{self.name}` in place")
            if name in _COPYING:
                return None
            if name in _SHARING:
                return self._climb(above)
            return self._refuse(above, f"changes `{self.name}` in place with `{name}`, or may")
        if isinstance(above, cst.AssignTarget | cst.AugAssign | cst.Del):
            return self._refuse(attribute, f"sets or changes `{self.source.code(attribute)}`")
        return None if name in _VALUES else self._climb(attribute)

    def _subscript(self, subscript: cst.Subscript) -> None:
        above = self.source.parent(subscript)
        written = isinstance(above, cst.AssignTarget | cst.Del) or (
            isinstance(above, cst.AugAssign) and above.target is subscript
        )
        within_target = isinstance(above, cst.Element) and self._is_target(above)
        if written or within_target:
            return self._refuse(subscript, f"sets or changes `{self.source.code(subscript)}`")
        return self._climb(subscript)

    def _is_target(self, element: Node) -> bool:
        for above in self.source.ancestors(element):
            if isinstance(above, cst.AssignTarget):
                return True
            if not isinstance(above, cst.Element | cst.Tuple | cst.List):
                return isinstance(above, cst.For | cst.CompFor) and element is above.target
        return False

    def _argument(self, call: cst.Call, arg: cst.Arg) -> None:
        name, full = called(call), qualified(self.source, call.func)
        if arg.keyword is not None and arg.keyword.value == "out":
            return self._refuse(call, f"writes into `{self.name}`")
        if isinstance(call.func, cst.Attribute) and not full:
            if name == "join":
                return None
            return self._taint(call.func.value) if name in _HOLDING else self._hands_to(call)
        if full in _COPIES or (full == "numpy.array" and argument(call, "copy") is None):
            return None
        if not full and isinstance(call.func, cst.Name):
            if name in _PLAIN:
                return None
            return self._climb(call) if name in _SHARES else self._hands_to(call)
        first = full.partition(".")[0]
        if first == "torch" and not name.endswith("_") and argument(call, "inplace") is None:
            return self._climb(call)
        if first == "numpy" and not self._numpy_writes(call, full):
            return self._climb(call)
        return self._hands_to(call)

    def _numpy_writes(self, call: cst.Call, full: str) -> bool:
        name = called(call)
        # the third argument of a NumPy function may be its output
        plain = len([one for one in call.args if one.keyword is None])
        return full.startswith("numpy.random") or name in _NUMPY_WRITES or (plain > 2 and name not in _MORE_THAN_TWO)

    def _hands_to(self, call: cst.Call) -> None:
        receiver = called(call) or "a function"
        self._refuse(call, f"hands `{self.name}` to `{receiver}`, which may change it")


def goes_to_default_collate(source: Source, owner: cst.ClassDef) -> bool:
    """Whether torch copies all samples of a data set into batches, as far as this file shows."""
    name = owner.name.value
    for one in source.nodes:
        if isinstance(one, cst.Name) and one.value in ("collate_fn", "batch_sampler", "default_convert"):
            return False
        gives = isinstance(one, cst.FunctionDef) and one.name.value in ("__getitem__", "__iter__")
        if gives and not any(above is owner for above in source.ancestors(one)):
            return False
        keyword = one.keyword.value if isinstance(one, cst.Arg) and one.keyword is not None else ""
        if isinstance(one, cst.Arg) and keyword == "batch_size" and dotted(one.value) == "None":
            return False
    made = [
        one for one in source.nodes
        if isinstance(one, cst.Name) and one.value == name and source.parent(one) is not owner
    ]  # fmt: skip
    return bool(made) and all(_is_loaded(source, one) for one in made)


def _is_loaded(source: Source, name: Node) -> bool:
    """Whether the instance that a class makes here only goes into a DataLoader."""
    call = source.parent(name)
    if isinstance(call, cst.Arg):
        # super(Data, self)
        outer = source.parent(call)
        return isinstance(outer, cst.Call) and called(outer) == "super"
    return isinstance(call, cst.Call) and call.func is name and _goes_to_loader(source, call)


def _goes_to_loader(source: Source, node: Node) -> bool:
    """Whether a data set, or a part of one, is only used as an argument of a DataLoader."""
    above = source.parent(node)
    if isinstance(above, cst.Arg):
        call = source.parent(above)
        if not isinstance(call, cst.Call):
            return False
        if called(call) == "len" or qualified(source, call.func).endswith("torch.utils.data.DataLoader"):
            return True
        return qualified(source, call.func) in PARTS_OF_DATA and _goes_to_loader(source, call)
    held = _names_set_to(source, above)
    return bool(held) and all(_all_go_to_loader(source, node, name) for name in held)


def _all_go_to_loader(source: Source, node: Node, name: str) -> bool:
    scope: Node | None = scope_of(source, node)
    if name.startswith("self."):
        function = function_of(source, node)
        scope = class_of(source, function) if function is not None else None
        known = [] if scope is None else uses(source, scope, name)
        named = [one for one in source.nodes if isinstance(one, cst.Attribute) and f"self.{one.attr.value}" == name]
        if scope is None or any(one not in known for one in named):
            return False
    assert scope is not None
    return all(_goes_to_loader(source, one) for one in uses(source, scope, name) if not binds(source, one))


def _names_set_to(source: Source, above: Node | None) -> list[str]:
    """The variables that are set to a value, also in `train, val = Data(1), Data(2)`; empty if that is unclear."""
    pair = source.parent(above) if isinstance(above, cst.Element) else None
    assign = source.parent(pair) if isinstance(pair, cst.Tuple) else above
    if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return []
    names = list(leaves(assign.targets[0].target))
    if isinstance(pair, cst.Tuple):
        own = next(index for index, one in enumerate(pair.elements) if one is above)
        names = names[own : own + 1] if len(names) == len(pair.elements) else []
    return [dotted(one) for one in names] if all(dotted(one) for one in names) else []
