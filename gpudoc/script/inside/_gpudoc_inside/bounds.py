"""Which ordered settings may be applied to a loader without changing samples or their order; why others may not."""

from __future__ import annotations

import dis
import functools
import inspect
import pickle
import sys
import types
from typing import Any, Iterator, NamedTuple, Sequence

from .batches import is_iterable

# libraries whose own samplers are trusted not to draw between batches
_STANDARD = ("torch", "accelerate", "lightning", "pytorch_lightning", "lightning_fabric", "transformers", "torchdata")


# torch draws a seed from the script's random numbers for each new set of workers, but none for persistent workers
_SEEDS = "the order of the samples would change: new workers and persistent workers draw different random numbers"


class LoaderVerdict(NamedTuple):
    """The arguments that replace the script's when a loader is built, the refused ones, and what may differ."""

    changed: dict[str, Any]
    refused: dict[str, str]
    notes: list[str]


def judge(said: dict[str, Any], order: dict[str, Any]) -> LoaderVerdict:
    """Decide which settings apply to a loader that the script builds with the arguments `said`, defaults included."""
    verdict = LoaderVerdict({}, {}, [])
    wanted: dict[str, Any] = {name: value for name, value in (order["loader"] or {}).items() if value is not None}
    if order["batch"] is not None:
        _batch(said, order["batch"], verdict)
    if "num_workers" in wanted:
        _workers(said, wanted["num_workers"], verdict)
    if "pin_memory" in wanted:
        _pinning(said, wanted["pin_memory"], verdict)
    workers = verdict.changed.get("num_workers", said["num_workers"])
    if workers == 0:
        _without_workers(said, verdict)
        return verdict
    if "prefetch_factor" in wanted and wanted["prefetch_factor"] != (said.get("prefetch_factor") or 2):
        verdict.changed["prefetch_factor"] = wanted["prefetch_factor"]
    if "persistent_workers" in wanted and bool(wanted["persistent_workers"]) != bool(said.get("persistent_workers")):
        _persistence(said, wanted["persistent_workers"], verdict)
    if "num_workers" in verdict.changed or "persistent_workers" in verdict.changed:
        _values(said, verdict)
    return verdict


def is_sharded(said: dict[str, Any]) -> bool:
    """Whether an iterable data set, or the function that starts a worker, asks which worker it is in."""
    names = {"get_worker_info"}
    return mentions(said["dataset"], names) or mentions(said.get("worker_init_fn"), names)


def draws(said: dict[str, Any]) -> bool:
    """Whether the data set, its transforms or the collate function draw random numbers, as far as their code shows."""
    return any(mentions(said.get(name), set(RANDOM)) for name in ("dataset", "collate_fn"))


def _batch(said: dict[str, Any], batch: int, verdict: LoaderVerdict) -> None:
    if said.get("batch_sampler") is not None:
        verdict.refused["batch_size"] = "its batches are made by a batch_sampler"
    elif not isinstance(said["batch_size"], int):
        verdict.refused["batch_size"] = "its data set makes the batches (batch_size=None)"
    elif said["batch_size"] != batch:
        verdict.changed["batch_size"] = batch


def _workers(said: dict[str, Any], asked: int, verdict: LoaderVerdict) -> None:
    if asked == said["num_workers"]:
        return
    why = _why_workers_stay(said, asked)
    if why is None:
        verdict.changed["num_workers"] = asked
    else:
        verdict.refused["num_workers"] = why


def _why_workers_stay(said: dict[str, Any], asked: int) -> str | None:
    dataset = said["dataset"]
    if not asked and said.get("persistent_workers"):
        return _SEEDS
    if is_iterable(dataset):
        if not is_sharded(said):
            return "an iterable data set that does not use get_worker_info returns every sample once per worker"
        if said.get("drop_last"):
            return "with drop_last each worker of an iterable data set drops its own last batch"
        if mentions(dataset, set(RANDOM)):
            return "an iterable data set that draws random numbers distributes its samples differently in each worker"
    sampler = said.get("batch_sampler") or said.get("sampler")
    if sampler is not None and _draws_late(sampler):
        return "its sampler draws random numbers between batches, so prefetching changes the order"
    if asked and not said["num_workers"]:
        if any(getattr(held, "is_cuda", False) for held in _held(dataset)):
            return "the data set holds tensors on the GPU, which worker processes cannot use"
        return _why_not_sent(said)
    return None


def _draws_late(sampler: Any) -> bool:
    inner = [sampler, *getattr(sampler, "__dict__", {}).values()]
    own = [held for held in inner if str(type(held).__module__).partition(".")[0] not in _STANDARD]
    found = (methods(type(held)).get("__iter__") for held in own)
    return any(draws_on_the_way(function) for function in found if function is not None)


def _held(dataset: Any) -> list[Any]:
    found: list[Any] = []
    for value in list(getattr(dataset, "__dict__", {}).values())[:50]:
        found += list(value[:4]) if isinstance(value, (list, tuple)) else [value]
    return found


class _Nowhere:
    def write(self, data: Any) -> int:
        return len(data)


def _why_not_sent(said: dict[str, Any]) -> str | None:
    """Why the data set cannot be pickled for workers that are not forked; the script may never have used workers."""
    multiprocessing: Any = sys.modules.get("torch.multiprocessing") or sys.modules.get("multiprocessing")
    # without allow_none, the query would fix the method, which the script may still want to choose
    method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    if method == "fork" or said.get("multiprocessing_context") is not None:
        return None
    try:
        for name in ("dataset", "collate_fn", "worker_init_fn"):
            pickle.Pickler(_Nowhere()).dump(said.get(name))
    except Exception as problem:
        return f"its workers would not be forked, and the data set cannot be sent to them: {str(problem)[:200]}"
    return None


def _pinning(said: dict[str, Any], asked: bool, verdict: LoaderVerdict) -> None:
    if bool(asked) == bool(said["pin_memory"]):
        return
    version = sys.modules["torch"].version
    if asked and not (version.cuda or getattr(version, "hip", None)):
        verdict.refused["pin_memory"] = (
            "this PyTorch is built without GPU support, so there is nothing to pin memory for"
        )
    else:
        verdict.changed["pin_memory"] = asked


def _without_workers(said: dict[str, Any], verdict: LoaderVerdict) -> None:
    # torch refuses settings that need workers
    for name, none in (("prefetch_factor", None), ("persistent_workers", False), ("multiprocessing_context", None)):
        if said.get(name) not in (none, False):
            verdict.changed[name] = none


def _persistence(said: dict[str, Any], asked: bool, verdict: LoaderVerdict) -> None:
    why = _why_workers_end(said) if asked else _SEEDS
    if why is None:
        verdict.changed["persistent_workers"] = asked
    else:
        verdict.refused["persistent_workers"] = why


def _why_workers_end(said: dict[str, Any]) -> str | None:
    sampler = said.get("batch_sampler") or (said.get("sampler") if said["batch_size"] is None else None)
    if sampler is not None and not _is_lazy(sampler):
        return _SEEDS
    for held in parts(said["dataset"]):
        where = stores(held, "__getitem__", "__getitems__", "__iter__", "__call__", "forward")
        if where is not None:
            return f"{where} modifies the data set while it is read, and persistent workers would keep those changes"
        if "set_epoch" in methods(type(held)):
            return "the data set receives the epoch through set_epoch, which does not reach persistent workers"
    return None


def _is_lazy(sampler: Any) -> bool:
    """Whether a sampler draws nothing before its first item is asked for."""
    return inspect.isgeneratorfunction(getattr(type(sampler), "__iter__", None))


def _values(said: dict[str, Any], verdict: LoaderVerdict) -> None:
    if draws(said):
        verdict.notes.append(
            "the data set or its transforms call functions that draw random numbers: if these come from the global "
            "generators, the values differ with a different number of workers, and if the script shuffles without a "
            "generator, the order may differ too after the first epoch"
        )
    if is_iterable(said["dataset"]):
        verdict.notes.append(
            "the samples of an iterable data set come in a different order with a different num_workers"
        )


# functions of the usual libraries that draw from the global random numbers
RANDOM = frozenset(
    {
        *("rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "randperm", "random", "random_"),
        *("randrange", "uniform", "uniform_", "normal_", "shuffle", "choice", "choices", "permutation", "permuted"),
        *("multinomial", "bernoulli", "bernoulli_", "gauss", "standard_normal"),
    }
)
_NOT_OWN = ("builtins", "torch", "typing", "abc", "collections", "numpy", "enum", "functools", "PIL", "io", "pathlib")
_MAX_OBJECTS = 200
_MAX_ITEMS = 20
_MAX_DEPTH = 4


def mentions(thing: Any, names: set[str]) -> bool:
    """Whether one of the names is used in the code of an object, of its parts, or of the functions that they call."""
    return any(names & set(code.co_names) for held in parts(thing) for code in codes(held))


def parts(thing: Any) -> Iterator[Any]:
    """An object and the objects that it holds, if their code is the user's: transforms, or a data set in another."""
    seen: set[int] = set()
    waiting = [(thing, 0)]
    while waiting and len(seen) < _MAX_OBJECTS:
        held, depth = waiting.pop(0)
        if id(held) in seen or held is None:
            continue
        seen.add(id(held))
        if isinstance(held, dict):
            inner: list[Any] = list(held.values())[:_MAX_ITEMS]
        elif isinstance(held, (list, tuple)):
            inner = list(held[:_MAX_ITEMS])
        elif isinstance(held, functools.partial):
            inner = [held.func, *held.args, *held.keywords.values()]
        elif _is_function(held) or _is_own(type(held)):
            yield held
            inner = list(getattr(held, "__dict__", {}).values())
            inner += [cell.cell_contents for cell in getattr(held, "__closure__", None) or () if _is_filled(cell)]
        else:
            continue
        if depth < _MAX_DEPTH:
            waiting += [(item, depth + 1) for item in inner]


def codes(thing: Any) -> Iterator[types.CodeType]:
    """The byte code of a function or of an object's methods, of functions within them, and of functions they call."""
    waiting = [_function(thing)] if _is_function(thing) else list(methods(type(thing)).values())
    seen: set[types.CodeType] = set()
    while waiting:
        function = waiting.pop()
        for code in _within(function.__code__):
            if code in seen:
                continue
            seen.add(code)
            yield code
            called = [function.__globals__.get(name) for name in code.co_names]
            waiting += [item for item in called if isinstance(item, types.FunctionType) and _is_own(item)]


def methods(kind: type) -> dict[str, types.FunctionType]:
    """The methods of a class, by name, whose code belongs neither to torch nor to Python."""
    found: dict[str, types.FunctionType] = {}
    for base in reversed(kind.__mro__):
        if _is_own(base):
            for name, value in vars(base).items():
                function = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
                if isinstance(function, types.FunctionType):
                    found[name] = function
    return found


def stores(thing: Any, *entries: str) -> str | None:
    """`Class.method` of the first method that stores into its object and runs when one of `entries` does; or None."""
    known = methods(type(thing))
    waiting, seen = [name for name in entries if name in known], set()
    while waiting:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        code = known[name].__code__
        if _stores_into(code, code.co_varnames[:1]):
            return f"{type(thing).__name__}.{name}"
        waiting += [called for called in code.co_names if called in known]
    return None


def draws_on_the_way(function: types.FunctionType) -> bool:
    """Whether a generator draws random numbers between its items, and not only before the first one."""
    code = function.__code__
    if not code.co_flags & inspect.CO_GENERATOR:
        return False
    steps = list(dis.get_instructions(code))
    draws = [step.offset for step in steps if step.argval in RANDOM]
    yields = [step.offset for step in steps if step.opname in ("YIELD_VALUE", "YIELD_FROM", "SEND")]
    if not draws or not yields:
        return False
    if max(draws) > min(yields):
        return True
    jumps = dis.hasjrel + dis.hasjabs
    back = [step.argval for step in steps if step.opcode in jumps and step.offset > min(yields)]
    return any(isinstance(target, int) and target <= max(draws) for target in back)


def _stores_into(code: types.CodeType, first: Sequence[str]) -> bool:
    if not first:
        return False
    before: Any = None
    for step in dis.get_instructions(code):
        if step.opname == "STORE_ATTR" and before is not None and before.opname.startswith("LOAD_FAST"):
            # newer Python versions load two variables at once
            loaded = before.argval[-1] if isinstance(before.argval, tuple) else before.argval
            if loaded == first[0]:
                return True
        before = step
    return False


def _within(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _within(constant)


def _function(thing: Any) -> types.FunctionType:
    found: types.FunctionType = getattr(thing, "__func__", thing)
    return found


def _is_function(thing: Any) -> bool:
    return isinstance(thing, (types.FunctionType, types.MethodType)) and _is_own(thing)


def _is_own(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "builtins")).partition(".")[0] not in _NOT_OWN


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


_PLAIN = (bool, int, float, str, bytes, type(None))
_MARKED_DEPTH = 3
_MARKED_ITEMS = 1000
_MARKED_BYTES = 1 << 20


def fingerprint(thing: Any) -> dict[str, Any]:
    """The fields of an object and of the objects within it, each as a value that stays equal until a field changes."""
    return {name: _mark(value, 1) for name, value in getattr(thing, "__dict__", {}).items()}


def difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    """The names of the fields that differ."""
    names = sorted(name for name in {*before, *now} if before.get(name, before) != now.get(name, now))
    return ", ".join(names)


def _mark(value: Any, depth: int) -> Any:
    if isinstance(value, _PLAIN):
        return value
    tensor = getattr(sys.modules.get("torch"), "Tensor", ())
    if isinstance(value, tensor):
        return (id(value), value._version)
    number = getattr(value, "nbytes", None)
    if isinstance(number, int) and hasattr(value, "tobytes"):
        # a change in place only shows in the values
        return (id(value), hash(value.tobytes()) if number <= _MARKED_BYTES else number)
    if depth >= _MARKED_DEPTH:
        return id(value)
    if isinstance(value, (list, tuple)):
        return (id(value), len(value), tuple(_mark(item, depth + 1) for item in value[:_MARKED_ITEMS]))
    if isinstance(value, dict):
        return _of_dict(value, depth)
    fields = getattr(value, "__dict__", None)
    return (id(value), _of_dict(fields, depth)) if isinstance(fields, dict) else id(value)


def _of_dict(value: dict[Any, Any], depth: int) -> tuple[Any, ...]:
    items = list(value.items())[:_MARKED_ITEMS]
    return (len(value), tuple((str(name), _mark(item, depth + 1)) for name, item in items))
