"""Loaders as they are built: where, from what, and with the settings that were ordered for them."""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from typing import Any, Callable, NamedTuple

from . import bounds, changes, samples
from .feed import BatchFeed
from .place import UserPlace, find_place, frames, is_users
from .report import HookReport, is_worker

_SETTINGS = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "batch_size")
_LARGEST_BATCHES = 3


class Building(NamedTuple):
    """A loader that is being built: what the script says, what it is built with, and whose it is."""

    place: UserPlace
    key: str
    said: dict[str, Any]
    verdict: bounds.LoaderVerdict
    meant: bool
    remade_from: int | None
    call: tuple[tuple[Any, ...], dict[str, Any]]


class Loaders:
    """Every loader of this process in the order in which they are built."""

    def __init__(self, report: HookReport, feed: BatchFeed) -> None:
        self._report = report
        self._feed = feed
        self._count = 0
        self._meant: dict[int, bool] = {}
        self._states: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def torch_is_here(self, module: Any) -> None:
        """Watch torch's own class, and with it every class made from it."""
        self._wrap(module.DataLoader)

    def torchdata_is_here(self, module: Any) -> None:
        """Watch torchdata's class, which is built without calling torch's."""
        self._wrap(module.StatefulDataLoader)

    def _wrap(self, kind: Any) -> None:
        build, iterate = kind.__init__, kind.__iter__

        @functools.wraps(build)
        def built(loader: Any, *args: Any, **kwargs: Any) -> None:
            if self._report.off or is_worker():
                build(loader, *args, **kwargs)
                return
            building = None
            try:
                building = self._begin(build, loader, args, kwargs)
            except Exception as problem:
                self._report.step_aside("a loader", problem)
            if building is None or not self._as_ordered(build, loader, building):
                build(loader, *args, **kwargs)
            if building is not None and not self._report.off:
                try:
                    self._done(loader, building)
                except Exception as problem:
                    self._report.step_aside("a loader", problem)

        @functools.wraps(iterate)
        def iterated(loader: Any) -> Any:
            if not self._report.off:
                try:
                    self._refresh(loader)
                except Exception as problem:
                    self._report.step_aside("an epoch", problem)
            return self._feed.iterating(loader, iterate)

        kind.__init__, kind.__iter__ = built, iterated
        self._report.undo.append(lambda: _restore(kind, build, iterate))

    def _begin(self, build: Callable[..., None], loader: Any, args: Any, kwargs: Any) -> Building | None:
        bound = _bind(build, loader, args, kwargs)
        if bound is None or loader in self._feed.numbers:
            return None
        said = _with_defaults(bound)
        place = find_place()
        key = _key(place, said)
        origin = self._origin(said["dataset"])
        meant = key in self._report.order["keys"] or (origin is not None and self._meant.get(origin, False))
        verdict = bounds.judge(said, self._report.order) if meant else bounds.LoaderVerdict({}, {}, [])
        for name, value in verdict.changed.items():
            bound.arguments[name] = value
        return Building(place, key, said, verdict, meant, origin, (bound.args, bound.kwargs))

    def _as_ordered(self, build: Callable[..., None], loader: Any, building: Building) -> bool:
        """Build the loader with the settings that were ordered; False where that must be done as the script says."""
        if not building.verdict.changed:
            return False
        args, kwargs = building.call
        try:
            build(*args, **kwargs)
        except Exception as problem:
            loader.__dict__.clear()
            why = f"torch would not build it so: {str(problem)[:200]}"
            building.verdict.refused.update({name: why for name in building.verdict.changed if name in _SETTINGS})
            building.verdict.changed.clear()
            building.verdict.notes.clear()
            return False
        return True

    def _origin(self, dataset: Any) -> int | None:
        """The number of the loader that a framework builds this one from: it holds it while it does."""
        for frame in frames():
            if is_users(frame.f_code.co_filename):
                return None
            package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            for held in [] if package == "torch" else list(frame.f_locals.values()):
                number = self._number(held)
                if number is not None and getattr(held, "dataset", None) is dataset:
                    return number
        return None

    def _number(self, thing: Any) -> int | None:
        return next((number for loader, number in self._feed.numbers.items() if loader is thing), None)

    def _done(self, loader: Any, building: Building) -> None:
        number, self._count = self._count, self._count + 1
        self._feed.numbers[loader] = number
        self._meant[number] = building.meant
        verdict, said = building.verdict, building.said
        if building.meant and self._report.order["longest_first"]:
            self._put_largest_first(number, loader, building)
        if verdict.changed.get("persistent_workers"):
            self._states[loader] = changes.fingerprint(loader.dataset)
        iterable = bounds.is_iterable(said["dataset"])
        self._report.tell(
            "loader",
            number=number,
            key=building.key,
            place=building.place.short,
            file=building.place.file,
            line=building.place.line,
            through=building.place.through,
            remade_from=building.remade_from,
            dataset=type(said["dataset"]).__name__,
            samples=_length(said["dataset"]),
            sampler=type(loader.sampler).__name__,
            own_batch_sampler=said.get("batch_sampler") is not None,
            iterable=iterable,
            sharded=iterable and bounds.is_sharded(said),
            # asking a loader of a stream for its length changes what it warns of
            length=None if iterable else _length(loader),
            drop_last=bool(loader.drop_last),
            script={name: _plain(said.get(name)) for name in _SETTINGS},
            applied={name: value for name, value in verdict.changed.items() if name in _SETTINGS and value is not None},
            refused=verdict.refused,
            notes=verdict.notes,
            **{name: _plain(getattr(loader, name, None)) for name in _SETTINGS},
        )

    def _put_largest_first(self, number: int, loader: Any, building: Building) -> None:
        said = building.said
        torch_batches: Any = sys.modules["torch.utils.data.sampler"]
        plain = type(loader.batch_sampler) is torch_batches.BatchSampler
        if bounds.is_iterable(said["dataset"]) or not plain:
            return
        found = samples.largest_first(loader, _LARGEST_BATCHES + self._report.order["warm_steps"])
        self._report.tell("data", loader=number, largest=found)

    def _refresh(self, loader: Any) -> None:
        """Before an epoch: workers that live on because it was ordered start afresh once the data set was changed."""
        before = self._states.get(loader)
        if before is None:
            return
        now = changes.fingerprint(loader.dataset)
        if getattr(loader, "_iterator", None) is None:
            self._states[loader] = now
        elif now != before:
            self._states[loader] = now
            loader._iterator = None
            fields = changes.difference(before, now)
            self._report.tell("data", loader=self._feed.numbers.get(loader), changed=fields)
        else:
            # new workers would have drawn their seed here; without it the next shuffle would be another one
            torch: Any = sys.modules["torch"]
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)


def _bind(build: Callable[..., None], loader: Any, args: Any, kwargs: Any) -> inspect.BoundArguments | None:
    try:
        bound = inspect.signature(build).bind(loader, *args, **kwargs)
    except TypeError:
        # the script's own mistake, which torch tells in its words
        return None
    return bound if "dataset" in bound.arguments else None


def _with_defaults(bound: inspect.BoundArguments) -> dict[str, Any]:
    full = inspect.BoundArguments(bound.signature, bound.arguments.copy())
    full.apply_defaults()
    return dict(full.arguments)


def _key(place: UserPlace, said: dict[str, Any]) -> str:
    sampler = said.get("batch_sampler") or said.get("sampler")
    order = type(sampler).__name__ if sampler is not None else ("shuffled" if said.get("shuffle") else "in order")
    dataset = said["dataset"]
    return "{}|{}|{}|{}".format("<".join(place.lines), type(dataset).__name__, _length(dataset), order)


def _length(thing: Any) -> int | None:
    try:
        return len(thing)
    except Exception:
        # what has no length, or does not know it yet
        return None


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int)) else None


def _restore(kind: Any, build: Any, iterate: Any) -> None:
    kind.__init__, kind.__iter__ = build, iterate
