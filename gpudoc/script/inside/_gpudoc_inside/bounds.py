"""What of an order may be applied to a loader: samples and their order stay as they are; what may not be is said."""

from __future__ import annotations

import inspect
import pickle
import sys
from typing import Any, NamedTuple

from . import code

# they may keep the state that they were given; whoever sees them knows better
_STANDARD = ("torch", "accelerate", "lightning", "pytorch_lightning", "lightning_fabric", "transformers", "torchdata")


# torch draws a seed from the script's random numbers for each new set of workers, and none for those that live on
_SEEDS = "the order of the samples would change: new workers and workers that live on draw different random numbers"


class LoaderVerdict(NamedTuple):
    """The arguments that a loader is built with in place of the script's, what was refused, and what may differ."""

    changed: dict[str, Any]
    refused: dict[str, str]
    notes: list[str]


def judge(said: dict[str, Any], order: dict[str, Any]) -> LoaderVerdict:
    """What of the order holds for a loader that the script builds with the arguments `said`, defaults included."""
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


def is_iterable(dataset: Any) -> bool:
    """Whether torch reads a data set as a stream."""
    kind: Any = getattr(sys.modules.get("torch.utils.data.dataset"), "IterableDataset", ())
    return isinstance(dataset, kind)


def is_sharded(said: dict[str, Any]) -> bool:
    """Whether an iterable data set, or the function that starts a worker, asks which worker it is in."""
    names = {"get_worker_info"}
    return code.mentions(said["dataset"], names) or code.mentions(said.get("worker_init_fn"), names)


def draws(said: dict[str, Any]) -> bool:
    """Whether data set, transforms or collate function draw random numbers, as far as their code shows."""
    return any(code.mentions(said.get(name), set(code.RANDOM)) for name in ("dataset", "collate_fn"))


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
            return "an iterable data set that does not ask get_worker_info gives every sample once per worker"
        if said.get("drop_last"):
            return "with drop_last each worker of an iterable data set drops its own last batch"
        if code.mentions(dataset, set(code.RANDOM)):
            return "an iterable data set that draws random numbers shares its samples out differently in each worker"
    sampler = said.get("batch_sampler") or said.get("sampler")
    if sampler is not None and _draws_late(sampler):
        return "its sampler draws random numbers between batches, so that prefetching changes the order"
    if asked and not said["num_workers"]:
        if any(getattr(held, "is_cuda", False) for held in _held(dataset)):
            return "the data set holds tensors on the GPU, which worker processes cannot use"
        return _why_not_sent(said)
    return None


def _draws_late(sampler: Any) -> bool:
    inner = [sampler, *getattr(sampler, "__dict__", {}).values()]
    own = [held for held in inner if str(type(held).__module__).partition(".")[0] not in _STANDARD]
    found = (code.methods(type(held)).get("__iter__") for held in own)
    return any(code.draws_on_the_way(function) for function in found if function is not None)


def _held(dataset: Any) -> list[Any]:
    found: list[Any] = []
    for value in list(getattr(dataset, "__dict__", {}).values())[:50]:
        found += list(value[:4]) if isinstance(value, (list, tuple)) else [value]
    return found


class _Nowhere:
    def write(self, data: Any) -> int:
        return len(data)


def _why_not_sent(said: dict[str, Any]) -> str | None:
    """Workers that are not forked get the data set by pickle; a script without workers may never have tried."""
    multiprocessing: Any = sys.modules.get("torch.multiprocessing") or sys.modules.get("multiprocessing")
    # asking without allow_none would fix the method, which the script may still want to choose
    method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    if method == "fork" or said.get("multiprocessing_context") is not None:
        return None
    try:
        for name in ("dataset", "collate_fn", "worker_init_fn"):
            pickle.Pickler(_Nowhere()).dump(said.get(name))
    except Exception as problem:
        return f"its workers would not be forked, and cannot be sent the data set: {str(problem)[:200]}"
    return None


def _pinning(said: dict[str, Any], asked: bool, verdict: LoaderVerdict) -> None:
    if bool(asked) == bool(said["pin_memory"]):
        return
    version = sys.modules["torch"].version
    if asked and not (version.cuda or getattr(version, "hip", None)):
        verdict.refused["pin_memory"] = "this PyTorch is built without a GPU to pin memory for"
    else:
        verdict.changed["pin_memory"] = asked


def _without_workers(said: dict[str, Any], verdict: LoaderVerdict) -> None:
    # torch refuses what only workers can have
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
    for held in code.parts(said["dataset"]):
        where = code.stores(held, "__getitem__", "__getitems__", "__iter__", "__call__", "forward")
        if where is not None:
            return f"{where} stores into the data set while it is read, and workers that live on would carry that on"
        if "set_epoch" in code.methods(type(held)):
            return "the data set receives the epoch through set_epoch, which does not reach workers that stay alive"
    return None


def _is_lazy(sampler: Any) -> bool:
    """Whether a sampler draws nothing before its first item is asked for."""
    return inspect.isgeneratorfunction(getattr(type(sampler), "__iter__", None))


def _values(said: dict[str, Any], verdict: LoaderVerdict) -> None:
    if draws(said):
        verdict.notes.append(
            "the data set or its transforms call functions that draw random numbers: where these come from the global "
            "generators, the values differ with other workers, and after the first epoch so may the order where the "
            "script shuffles without a generator"
        )
    if is_iterable(said["dataset"]):
        verdict.notes.append("the samples of an iterable data set come in another order with another num_workers")
