"""Whether every training step does the same: the operations of one step after the other, at a small batch.

What a step asks of memory follows from its operations. Where those of many small steps are the same, one after the
other, large steps that no longer move memory will not move it later: nothing new is done that could.
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

# the optimizer's state comes with the first step, and the second is the first to find it
_DIFFERENT_STEPS = 2


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the name of every operation, with how many numbers each of its results holds."""

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
    """Emit the fact `alike` for the request's steps; if that fails, it is not the user's fault."""

    def step() -> None:
        trainee.train([samples.worst(request.batches[0])])
        emit(LifeSign())

    alike = False
    with suppress(Exception):
        alike = are_alike(step, request.steps, is_late)
    emit(Fact(name="alike", value=float(alike)))


def are_alike(step: Callable[[], None], count: int, is_late: Callable[[], bool]) -> bool:
    """Whether the steps from the third to number `count` did the same and kept nothing; False when it gets late."""
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
    """No garbage is collected inside: tensors in a cycle of references stay, as they may for long in training."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _num_tensors() -> int:
    """How many tensors live. A type is asked for, since an object may lie about its class."""
    return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())
