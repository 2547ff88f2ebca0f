"""Whether all training steps do the same: compares the operations of one step after the other, at a small batch.

A step's operations determine its memory. If many small steps in a row have the same operations, large steps that have
stopped changing memory will not change it later, because they do nothing new.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpudoc.tune.child.samples import Samples
from gpudoc.tune.child.training import Trainee
from gpudoc.tune.trial.messages import TrialRequest
from gpudoc.tune.trial.wire import Emit, Fact, LifeSign

# the first step creates the optimizer's state, and the second is the first that finds it
_DIFFERENT_STEPS = 2


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the name of every operation, with the number of elements of each result."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.done: list[tuple[str, tuple[int, ...]]] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        parts = result if isinstance(result, tuple | list) else (result,)
        self.done.append((str(func), tuple(part.numel() for part in parts if isinstance(part, torch.Tensor))))
        return result


def tell_alike(
    trainee: Trainee, samples: Samples, request: TrialRequest, emit: Emit, is_late: Callable[[], bool]
) -> None:
    """Emit the fact `alike` for the request's steps; a failure here is not the user's error."""

    def step() -> None:
        trainee.train([samples.worst(request.batches[0])])
        emit(LifeSign())

    alike = False
    with suppress(Exception):
        alike = are_alike(step, request.steps, is_late)
    emit(Fact(name="alike", value=float(alike)))


def are_alike(step: Callable[[], None], count: int, is_late: Callable[[], bool]) -> bool:
    """Whether the steps from the third to number `count` did the same and kept no tensors; False if time runs out."""
    first: list[tuple[str, tuple[int, ...]]] = []
    kept = 0
    with _uncollected():
        for number in range(count):
            if is_late():
                return False
            with _Operations() as operations:
                step()
            if number == _DIFFERENT_STEPS:
                first, kept = operations.done, _num_tensors()
            elif number > _DIFFERENT_STEPS and operations.done != first:
                return False
        return _num_tensors() == kept


@contextmanager
def _uncollected() -> Iterator[None]:
    """Turn garbage collection off: tensors in a cycle of references stay, as they may for long in training."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _num_tensors() -> int:
    """The number of living tensors, by their type, since an object may lie about its class."""
    return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())
