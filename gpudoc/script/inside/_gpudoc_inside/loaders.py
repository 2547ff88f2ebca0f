"""Watches loaders being built: where, from what, and with which ordered settings."""

from __future__ import annotations

import functools
import inspect
import math
import os
import sys
import sysconfig
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator, NamedTuple

from .batches import BatchFeed, is_iterable
from .report import HookReport, is_worker

if TYPE_CHECKING:
    from .bounds import LoaderVerdict

_SETTINGS = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "batch_size")
_LARGEST_BATCHES = 3
# the same limits as in the tuner of own configurations
SCAN_SECONDS = 2.0
MAX_SCANNED = 20_000
_MAX_DEPTH = 6
_OWN = os.path.dirname(os.path.abspath(__file__))
_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")} - {""})
_PACKAGES = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_FRAMEWORKS = {
    "accelerate": "accelerate",
    "lightning": "lightning",
    "pytorch_lightning": "lightning",
    "lightning_fabric": "lightning",
    "transformers": "transformers",
    "timm": "timm",
}
_MAX_FRAMES = 4


class Building(NamedTuple):
    """A loader that is being built: the script's arguments, the verdict on an order, and where it comes from."""

    place: UserPlace
    key: str
    said: dict[str, Any]
    verdict: LoaderVerdict | None
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
        verdict = _bounds().judge(said, self._report.order) if meant else None
        if verdict is not None:
            bound.arguments.update(verdict.changed)
        return Building(place, key, said, verdict, origin, (bound.args, bound.kwargs))

    def _as_ordered(self, build: Callable[..., None], loader: Any, building: Building) -> bool:
        """Build the loader with the ordered settings; False if it must be built as the script says."""
        verdict = building.verdict
        if verdict is None or not verdict.changed:
            return False
        args, kwargs = building.call
        try:
            build(*args, **kwargs)
        except Exception as problem:
            loader.__dict__.clear()
            why = f"torch refused to build it this way: {str(problem)[:200]}"
            verdict.refused.update({name: why for name in verdict.changed if name in _SETTINGS})
            verdict.changed.clear()
            verdict.notes.clear()
            return False
        return True

    def _origin(self, dataset: Any) -> int | None:
        """The number of the loader from which a framework builds this one: a frame of the framework still holds it."""
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
        verdict, said = building.verdict, building.said
        self._meant[number] = verdict is not None
        changed = verdict.changed if verdict is not None else {}
        if verdict is not None and self._report.order["longest_first"]:
            self._put_largest_first(number, loader, building)
        if changed.get("persistent_workers"):
            self._states[loader] = _bounds().fingerprint(loader.dataset)
        iterable = is_iterable(said["dataset"])
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
            sharded=iterable and _bounds().is_sharded(said),
            # reading the length of an iterable data set's loader changes its warnings
            length=None if iterable else _length(loader),
            drop_last=bool(loader.drop_last),
            script={name: _plain(said.get(name)) for name in _SETTINGS},
            applied={name: value for name, value in changed.items() if name in _SETTINGS and value is not None},
            refused=verdict.refused if verdict is not None else {},
            notes=verdict.notes if verdict is not None else [],
            **{name: _plain(getattr(loader, name, None)) for name in _SETTINGS},
        )

    def _put_largest_first(self, number: int, loader: Any, building: Building) -> None:
        said = building.said
        torch_batches: Any = sys.modules["torch.utils.data.sampler"]
        plain = type(loader.batch_sampler) is torch_batches.BatchSampler
        if is_iterable(said["dataset"]) or not plain:
            return
        found = largest_first(loader, _LARGEST_BATCHES + self._report.order["warm_steps"])
        self._report.tell("data", loader=number, largest=found)

    def _refresh(self, loader: Any) -> None:
        """Before an epoch, restart the workers that persist only because of the order if the data set was changed."""
        before = self._states.get(loader)
        if before is None:
            return
        now = _bounds().fingerprint(loader.dataset)
        if getattr(loader, "_iterator", None) is None:
            self._states[loader] = now
        elif now != before:
            self._states[loader] = now
            loader._iterator = None
            fields = _bounds().difference(before, now)
            self._report.tell("data", loader=self._feed.numbers.get(loader), changed=fields)
        else:
            # new workers would have drawn their seed here; without this draw the next shuffle would differ
            torch: Any = sys.modules["torch"]
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)


def _bounds() -> Any:
    # most launches do not order loader settings: the module is imported with the first order
    from . import bounds

    return bounds


def _bind(build: Callable[..., None], loader: Any, args: Any, kwargs: Any) -> inspect.BoundArguments | None:
    try:
        bound = inspect.signature(build).bind(loader, *args, **kwargs)
    except TypeError:
        # the script's own mistake, which torch reports itself
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
        # it has no length, or does not know it yet
        return None


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int)) else None


def _restore(kind: Any, build: Any, iterate: Any) -> None:
    kind.__init__, kind.__iter__ = build, iterate


class UserPlace(NamedTuple):
    """The nearest line of the user's own code, the lines that led there, and the framework between it and torch."""

    file: str
    line: int
    through: str
    lines: tuple[str, ...]

    @property
    def short(self) -> str:
        """As `train.py:42`."""
        return at(self.file, self.line)


def find_place() -> UserPlace:
    """The place of the current call: the user's nearest line, or else the first line that is not torch's."""
    through, nearest = "torch", None
    lines: list[str] = []
    fallback = None
    for frame in frames():
        file, line = frame.f_code.co_filename, frame.f_lineno
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if is_users(file):
            nearest = nearest or (file, line)
            lines.append(at(file, line))
            if len(lines) == _MAX_FRAMES:
                break
        elif nearest is None:
            # the framework nearest to the user is the one that they know
            through = _FRAMEWORKS.get(package, through)
            if fallback is None and package not in ("torch", "torchdata") and not _is_library(file):
                fallback = (file, line)
    file, line = nearest or fallback or ("", 0)
    return UserPlace(file, line, through, tuple(lines) or (at(file, line),))


def at(file: str, line: int) -> str:
    """As `train.py:42`."""
    return f"{os.path.basename(file)}:{line}"


def frames() -> Iterator[Any]:
    """The frames of the current call without the hook's own, the innermost first."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_OWN):
            yield frame
        frame = frame.f_back


def is_users(file: str) -> bool:
    """Whether a source file is the user's own: neither Python's, nor an installed package's."""
    if file.startswith("<"):
        return file.startswith(("<stdin>", "<string>", "<ipython"))
    return not any(part in file for part in _PACKAGES) and not _is_library(file)


def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or file.startswith("<")


def sample_size(sample: Any, depth: int = 0) -> int:
    """The size of a sample, only for comparison with other samples of its data set."""
    total = getattr(sample, "nbytes", None)
    if isinstance(total, int):
        return total
    if isinstance(sample, (str, bytes)):
        return len(sample)
    if depth < _MAX_DEPTH and isinstance(sample, (list, tuple)):
        return sum(sample_size(item, depth + 1) for item in sample)
    if depth < _MAX_DEPTH and hasattr(sample, "items"):
        return sum(sample_size(item, depth + 1) for _, item in sample.items())
    shape = getattr(sample, "size", None)
    if isinstance(shape, tuple) and len(shape) == 2:
        # an image that is not decoded to numbers yet
        return int(shape[0]) * int(shape[1])
    return 1


def largest_samples(dataset: Any, most: int) -> list[int]:
    """The indices of the `most` largest samples, the largest first, among those that two seconds allow to look at.

    If there are more, the samples looked at are spread over the whole data set.
    """
    number = len(dataset)
    # the golden ratio: wherever the scan stops, it has covered all parts of the data set
    step = round(0.618034 * number)
    while math.gcd(step, number) > 1:
        step += 1
    until = time.perf_counter() + SCAN_SECONDS
    found = []
    for index in (count * step % number for count in range(min(number, MAX_SCANNED))):
        found.append((-sample_size(dataset[index]), index))
        if time.perf_counter() > until:
            break
    return [index for _, index in sorted(found)[:most]]


def largest_first(loader: Any, batches: int) -> int:
    """Put the largest samples into the first `batches` batches of a loader; returns the size of the largest one.

    Its batch sampler must be torch's own. The loader's usual batches follow.
    """
    torch_batches: Any = sys.modules["torch.utils.data.sampler"]
    plain = loader.batch_sampler
    chosen = largest_samples(loader.dataset, plain.batch_size)
    if not chosen:
        return 0

    class LargestFirst(torch_batches.BatchSampler):  # type: ignore[misc]
        """Some batches of the largest samples, then the batches of the script's sampler."""

        def __init__(self) -> None:
            super().__init__(plain.sampler, plain.batch_size, plain.drop_last)

        def __iter__(self) -> Iterator[list[int]]:
            repeated = [chosen[index % len(chosen)] for index in range(plain.batch_size)]
            for _ in range(batches):
                yield list(repeated)
            yield from plain

    # torch refuses to set this attribute after a loader is built
    loader.__dict__["batch_sampler"] = LargestFirst()
    return sample_size(loader.dataset[chosen[0]])
