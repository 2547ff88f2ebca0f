"""The batches drawn between two steps: from which loader, how long the script waited, and how many samples."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import random
import sys
import threading
import time
import types
import weakref
from typing import Any, Callable, Iterator

from .report import HookReport, RankPulse, is_worker

_LOOKED_AT = 3
_MAX_DEPTH = 6

_starting = threading.local()
_registered = False


class Stretch:
    """Batches drawn in a row from one loader, with or without gradients."""

    __slots__ = ("began", "digests", "ended", "grad", "loader", "samples", "wait_s", "waits")

    def __init__(self, loader: int, grad: bool, began: float) -> None:
        self.loader, self.grad, self.began, self.ended = loader, grad, began, began
        # by the host's clock; on a GPU as pairs of marks, between which the GPU was idle
        self.wait_s = 0.0
        self.waits: list[tuple[Any, Any, float]] = []
        self.samples: int | None = None
        self.digests: list[str] = []


class BatchFeed:
    """The loaders by number, the iterators over them, and what was drawn since the last step."""

    def __init__(self, report: HookReport, pulse: RankPulse) -> None:
        self._report, self._pulse = report, pulse
        self.numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._iterators: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        # the iterator that was drawn from last, and its entry: a look-up in the dictionary takes longer
        self._recent: tuple[Any, Any] = (lambda: None, None)
        self._wrapped: set[type] = set()
        self.stretches: list[Stretch] = []
        # called before another stretch begins
        self.turning: Callable[[], None] = lambda: None
        self.first_asked: float | None = None
        self._drawn: dict[int, int] = {}
        # whether batches of some loader must still be looked at, and whether batches are digested
        self._unseen = True
        self._records = bool(report.order.get("record_samples"))
        # steps made so far, and the number of first steps whose batches are digested; None: all
        self.steps = 0
        self._digested: int | None = report.order.get("digest_steps")
        self._thread = threading.get_ident()
        self._clock = time.perf_counter
        self._grad: Callable[[], bool] = lambda: True
        self.gpu = GpuClock()

    def taken(self) -> list[Stretch]:
        """The batches drawn since the last call."""
        found, self.stretches = self.stretches, []
        return found

    def iterating(self, loader: Any, make: Callable[[Any], Any]) -> Any:
        """A new iterator over a loader for the script."""
        queued = self.gpu.mark()
        began = self._clock()
        iterator = starting_workers(make, loader)
        if not self._report.off and loader in self.numbers and not is_worker():
            try:
                self._know(iterator, loader, began, queued)
            except Exception as problem:
                self._report.step_aside("iterating", problem)
        return iterator

    def _know(self, iterator: Any, loader: Any, began: float, queued: Any) -> None:
        if self.first_asked is None:
            self.first_asked = began
            self._grad = sys.modules["torch"].is_grad_enabled
        number = self.numbers[loader]
        kind = type(iterator)
        owner = next((base for base in kind.__mro__ if "__next__" in vars(base)), None)
        if owner is None or isinstance(iterator, types.GeneratorType):
            # the draws of a generator cannot be watched
            return
        self._iterators[iterator] = (number, getattr(loader, "batch_size", None))
        self._unseen = True
        self._wrap(owner)
        # the workers start here, and the script waits for them
        if threading.get_ident() == self._thread:
            self._wait(self._stretch(number, began, self._grad()), self._clock() - began, queued)

    def _wrap(self, owner: Any) -> None:
        if owner in self._wrapped:
            return
        self._wrapped.add(owner)
        draw = owner.__next__
        report, clock = self._report, self._clock
        asks, goes_on = self._pulse.asks, self._pulse.goes_on

        @functools.wraps(draw)
        def drawn(iterator: Any) -> Any:
            if report.off:
                return draw(iterator)
            recent, known = self._recent
            if recent() is not iterator:
                known = self._turn_to(iterator)
            if known is None:
                return draw(iterator)
            before = self._looking(known[0]) if self._unseen else None
            grad = self._grad()
            asks(grad)
            queued = self.gpu.mark()
            began = clock()
            try:
                batch = draw(iterator)
            finally:
                goes_on()
            ended = clock()
            try:
                self._note(known, batch, (began, ended, queued), grad)
                if before is not None:
                    self._look(known[0], batch, before)
            except Exception as problem:
                report.step_aside("a batch", problem)
            return batch

        owner.__next__ = drawn
        report.undo.append(lambda: setattr(owner, "__next__", draw))

    def _turn_to(self, iterator: Any) -> Any:
        """The entry of an iterator that was not the last one drawn from; None if no known loader made it."""
        known = self._iterators.get(iterator)
        if known is not None:
            self._recent = (weakref.ref(iterator), known)
        return known

    def _stretch(self, number: int, began: float, grad: bool) -> Stretch:
        if self.stretches:
            last = self.stretches[-1]
            if last.loader == number and last.grad is grad:
                return last
            self.turning()
        new = Stretch(number, grad, began)
        self.stretches.append(new)
        return new

    def _wait(self, stretch: Stretch, seconds: float, queued: Any) -> None:
        if queued is None:
            stretch.wait_s += seconds
        else:
            stretch.waits.append((queued, self.gpu.mark(), seconds))

    def _note(self, known: Any, batch: Any, times: Any, grad: bool) -> None:
        number, asked = known
        began, ended, queued = times
        stretch = self._stretch(number, began, grad)
        stretch.ended = ended
        if threading.get_ident() == self._thread:
            self._wait(stretch, ended - began, queued)
        found = count(batch, asked)
        if found is not None:
            stretch.samples = (stretch.samples or 0) + found
        if self._records and self._is_digested():
            stretch.digests.append(digest(batch, bool(self._report.order.get("single"))))

    def _is_digested(self) -> bool:
        # the lead of another thread, in steps, differs from launch to launch
        in_time = self._digested is None or self.steps < self._digested
        return in_time or threading.get_ident() != self._thread

    def _looking(self, number: int) -> list[Any] | None:
        # each loader's first batches are looked at more closely
        seen = self._drawn.get(number, 0)
        if seen >= _LOOKED_AT:
            self._unseen = any(self._drawn.get(other, 0) < _LOOKED_AT for other, _ in self._iterators.values())
            return None
        self._drawn[number] = seen + 1
        return None if seen < _LOOKED_AT - 1 else _random_state()

    def _look(self, number: int, batch: Any, before: list[Any]) -> None:
        # workers draw their random numbers in other processes
        workers = any(getattr(loader, "num_workers", 0) for loader, own in self.numbers.items() if own == number)
        self._report.tell(
            "data",
            loader=number,
            random=None if workers else before != _random_state(),
            batch_bytes=num_bytes(batch),
            other_thread=threading.get_ident() != self._thread,
        )


def _random_state() -> list[Any]:
    torch: Any = sys.modules["torch"]
    numpy: Any = sys.modules.get("numpy.random")
    state: list[Any] = [random.getstate(), bytes(torch.get_rng_state().tolist())]
    if numpy is not None:
        kind, keys, *rest = numpy.get_state()
        state += [kind, keys.tobytes(), *rest]
    return state


class GpuClock:
    """Marks in the queue of the GPU that trains; there are none without a GPU, or while a graph is captured."""

    def __init__(self) -> None:
        self._device: int | None = None
        self._process = os.getpid()

    def start(self, device: Any) -> None:
        """Start to make marks if `device` is a GPU."""
        self._device = (device.index or 0) if device.type == "cuda" else None

    def mark(self) -> Any:
        """A mark after all work that is queued now, or None."""
        # a fork cannot use the inherited GPU
        if self._device is None or self._process != os.getpid():
            return None
        try:
            cuda: Any = sys.modules["torch"].cuda
            # a graph would keep it, or fail
            if cuda.is_current_stream_capturing():
                return None
            mark = cuda.Event(enable_timing=True)
            mark.record(cuda.current_stream(self._device))
            return mark
        except Exception:
            # the GPU has failed: the script will see that in its own call
            self._device = None
            return None

    def is_past(self, mark: Any, wait: bool = False) -> bool:
        """Whether the GPU has reached a mark; `wait` waits for it. True if there is no mark, or no GPU."""
        if mark is None or self._device is None or self._process != os.getpid():
            return True
        try:
            if sys.modules["torch"].cuda.is_current_stream_capturing():
                return False
            if wait:
                mark.synchronize()
            return bool(mark.query())
        except Exception:
            self._device = None
            return True

    def seconds(self, begin: Any, end: Any, otherwise: float) -> float:
        """Seconds by the GPU's clock between two past marks; `otherwise` if a mark is missing or the GPU has failed."""
        if begin is None or end is None or self._device is None:
            return otherwise
        try:
            return float(begin.elapsed_time(end)) / 1e3
        except Exception:
            self._device = None
            return otherwise


def tensors(value: Any, depth: int = 0) -> Iterator[Any]:
    """Every tensor in a batch: in lists, tuples, dicts, and in the attributes of a batch object."""
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        yield value
    elif depth >= _MAX_DEPTH or isinstance(value, (str, bytes, int, float)):
        return
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item, depth + 1)
    elif hasattr(value, "items"):
        for _, item in value.items():
            yield from tensors(item, depth + 1)
    elif depth <= 1 and hasattr(value, "__dict__"):
        # not deeper: an object may hold the whole data set, or itself
        for item in list(vars(value).values()):
            yield from tensors(item, depth + 1)


def count(batch: Any, asked: int | None) -> int | None:
    """Samples in a batch: the first dimension of its first tensor, at most `asked`; `asked` if it holds no tensor."""
    first = batch[0] if type(batch) in (list, tuple) and batch else batch
    if type(first) is not sys.modules["torch"].Tensor or not first.ndim:
        # the walk through all kinds takes several times as long, and most batches begin with a tensor
        first = next((tensor for tensor in tensors(batch) if tensor.dim()), None)
        if first is None:
            return asked
    found = int(first.shape[0])
    return found if asked is None or found <= asked else asked


def is_iterable(dataset: Any) -> bool:
    """Whether torch reads a data set as a stream."""
    kind: Any = getattr(sys.modules.get("torch.utils.data.dataset"), "IterableDataset", ())
    return isinstance(dataset, kind)


def num_bytes(batch: Any) -> int:
    """Bytes of all tensors of a batch."""
    return sum(int(tensor.numel() * tensor.element_size()) for tensor in tensors(batch))


def digest(batch: Any, single: bool = False) -> str:
    """A batch's content in 16 characters: equal for equal values in equal places; `single` makes doubles floats."""
    known = hashlib.blake2b(digest_size=8)
    for tensor in tensors(batch):
        held = tensor.detach().cpu().contiguous()
        held = held.float() if single and "float64" in str(held.dtype) else held
        known.update((f"{held.dtype}{tuple(held.shape)}").encode())
        known.update(ctypes.string_at(held.data_ptr(), held.numel() * held.element_size()))
    return known.hexdigest()


def starting_workers(make: Callable[[Any], Any], loader: Any) -> Any:
    """What `make` returns for the loader; processes forked meanwhile raise their soft memory limit to the hard one."""
    if not getattr(loader, "num_workers", 0):
        return make(loader)
    _register()
    _starting.now = True
    try:
        return make(loader)
    finally:
        _starting.now = False


def _register() -> None:
    global _registered
    if not _registered and hasattr(os, "register_at_fork"):
        _registered = True
        os.register_at_fork(after_in_child=_lift)


def _lift() -> None:
    if not getattr(_starting, "now", False):
        return
    try:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    except Exception:  # a worker with a limit is better than none
        return
