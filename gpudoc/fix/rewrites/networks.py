"""Which names of a file stand for networks, which optimizer has their weights, and which gradients are dropped."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import libcst as cst

from gpudoc.fix.flow import key
from gpudoc.fix.source import Node, Source
from gpudoc.fix.tree import (
    argument,
    bases,
    below,
    binding,
    called,
    calls,
    class_of,
    dotted,
    enclosing,
    function_of,
    local_class,
    qualified,
    scope_of,
)

# functions that get weights but train nothing
LOOKS = frozenset({
    "zip", "list", "sum", "len", "any", "all", "max", "min", "set", "filter", "chain", "tuple", "dict", "enumerate",
    "next", "print", "map", "sorted", "clip_grad_norm_", "clip_grad_value_", "parameters_to_vector",
})  # fmt: skip
_MAKES = ("torch.nn.", "torchvision.models.", "timm.create_model", "torch.hub.load")
# methods that return the same network
_SAME = frozenset({"to", "cuda", "cpu", "eval", "train", "float", "compile"})


@functools.lru_cache(maxsize=8)
def networks(source: Source) -> frozenset[str]:
    """Names that stand for a network: their `parameters` are used here, or they are made as a network."""
    found = {dotted(one.func).rpartition(".")[0] for one in calls(source.module) if called(one) == "parameters"}
    for _ in range(2):
        for one in source.nodes:
            if isinstance(one, cst.Assign) and _makes_network(source, one.value, found):
                found |= {name for name, _ in binding(one)}
    return frozenset(found - {"", "self"})


def _makes_network(source: Source, value: Node, known: set[str]) -> bool:
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and called(value) in _SAME:
        value = value.func.value
    if not isinstance(value, cst.Call):
        return False
    full, owner = qualified(source, value.func), local_class(source, called(value))
    if owner is not None:
        return any(base.endswith("Module") for base in bases(source, owner))
    if called(value) == "deepcopy" and value.args:
        return dotted(value.args[0].value) in known
    made = full.startswith(_MAKES) and called(value)[:1].isupper() and not called(value).endswith("Loss")
    return made or called(value) == "from_pretrained" or full in _MAKES


def is_network(source: Source, call: cst.Call) -> bool:
    """Whether a call runs a network of this file; a part of a module counts as the module."""
    name, function = dotted(call.func), function_of(source, call)
    if name not in networks(source):
        return False
    owner = class_of(source, function) if function is not None else None
    if name.startswith("self.") and owner is not None:
        return not any(base.endswith("Module") for base in bases(source, owner))
    return function is None or _means_the_same(source, function, name)


def _means_the_same(source: Source, function: cst.FunctionDef, name: str) -> bool:
    """Whether each call of a function passes a variable of the same name for its parameter `name`."""
    names = [one.name.value for one in function.params.params]
    if name not in names:
        return True
    given = [
        argument(call, name, names.index(name)) for call in calls(source.module) if called(call) == function.name.value
    ]
    return bool(given) and all(arg is not None and dotted(arg.value) == name for arg in given)


def is_frozen(source: Source, name: str) -> bool:
    """Whether the file itself turns gradients of a network off."""
    for one in source.nodes:
        if isinstance(one, cst.Call) and dotted(one.func) == f"{name}.requires_grad_":
            return True
        if isinstance(one, cst.For) and f"{name}.parameters()" in source.code(one.iter):
            named = (part for part in below(one.body) if isinstance(part, cst.Attribute))
            if any(part.attr.value in ("requires_grad", "requires_grad_") for part in named):
                return True
    return False


@functools.lru_cache(maxsize=8)
def _optimizers(source: Source) -> Mapping[str, frozenset[str]] | None:
    """The networks whose weights each optimizer has, by the key of its variable or attribute.

    None if an optimizer gets weights that the file does not show.
    """
    found: dict[str, frozenset[str]] = {}
    for call in calls(source.module):
        full = qualified(source, call.func)
        of_torch = full.startswith("torch.optim.") and "lr_scheduler" not in full and "swa_utils" not in full
        given = {
            dotted(one.func).rpartition(".")[0]
            for arg in call.args
            for one in calls(arg)
            if called(one) in ("parameters", "named_parameters")
        }
        if not of_torch and (not given or called(call) in LOOKS or _is_inside_another(source, call)):
            continue
        statement = source.parent(call)
        parts = [part for _, part in binding(statement)] if isinstance(statement, cst.Assign) else []
        if len(parts) != 1 or not given or "" in given:
            return None
        found[key(source, parts[0])] = found.get(key(source, parts[0]), frozenset()) | given
    return found


def _is_inside_another(source: Source, call: cst.Call) -> bool:
    """Whether a call is an argument of another call, as in `chain(a.parameters(), b.parameters())` under any name."""
    return any(isinstance(above, cst.Arg) for above in source.ancestors(call))


def _last(name: str) -> str:
    return name.rpartition(".")[2].rpartition(":")[2]


def drops_gradients(source: Source, network: str, backward: Node) -> bool:
    """Whether the gradients of a network from one backward are unused: they are zeroed before each optimizer step."""
    optimizers = _optimizers(source)
    if not optimizers:
        return False
    own = [name for name, given in optimizers.items() if any(_are_one(network, one) for one in given)]
    trained = any(_steps_of(source, call) for call in calls(scope_of(source, backward)))
    return trained and all(_zeroes_first(source, name, optimizers[name], backward) for name in own)


def _are_one(network: str, other: str) -> bool:
    """Whether two names stand for one network, or for a network and a part of it."""
    if _last(network) == _last(other):
        return True
    return network.startswith(f"{other}.") or other.startswith(f"{network}.")


def _steps_of(source: Source, call: cst.Call) -> frozenset[str]:
    """The optimizers that a call may step: `optimizer.step()`, `scaler.step(optimizer)`; empty if it steps none.

    There is one if its variable is set in the same function; for a parameter, all optimizers of this name count.
    """
    optimizers = _optimizers(source) or {}
    if called(call) != "step" or not isinstance(call.func, cst.Attribute):
        return frozenset()
    for part in (call.func.value, *(arg.value for arg in call.args[:1])):
        if isinstance(part, cst.Name | cst.Attribute):
            if (own := key(source, part)) in optimizers:
                return frozenset({own})
            if same := frozenset(one for one in optimizers if _last(one) == _last(dotted(part))):
                return same
    return frozenset()


def _zeroes_first(source: Source, optimizer: str, networks: frozenset[str], backward: Node) -> bool:
    """Whether gradients are zeroed before each step of an optimizer, and the backward does not come between the two."""
    zeroing = {_last(optimizer), *(_last(one) for one in networks)}
    at = source.span(backward)[0]
    for call in calls(source.module):
        if optimizer not in _steps_of(source, call):
            continue
        statement = enclosing(source, call, cst.SimpleStatementLine)
        block = source.parent(statement) if statement is not None else None
        if statement is None or not isinstance(block, cst.IndentedBlock | cst.Module):
            return False
        end = source.span(call)[0]
        zeroed = [
            source.span(one)[0]
            for row in block.body
            if isinstance(row, cst.SimpleStatementLine)
            for one in calls(row)
            if called(one) == "zero_grad" and source.span(one)[0] < end and isinstance(one.func, cst.Attribute)
            if _last(dotted(one.func.value)) in zeroing
        ]
        if not zeroed or zeroed[-1] < at < end:
            return False
    return True


def is_trained(source: Source, network: str) -> bool:
    """Whether an optimizer of the file has the weights of a network."""
    optimizers = _optimizers(source) or {}
    return any(_are_one(network, one) for given in optimizers.values() for one in given)
