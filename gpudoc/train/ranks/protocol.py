"""The ranks that train together: the interface to the others, and its version for a single process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol, TypeVar, cast

import torch
from torch import nn

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.train.ranks.pulse import Pulse

T = TypeVar("T")

# the messages of ranks in one vote, as bits of an int
OOM = 1
STOP = 2
BUSY = 4


class Ranks(Protocol):
    """The processes of one run. All of them call every method at the same place."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    is_sharded: bool
    pulse: Pulse

    def vote(self, flags: int) -> int:
        """The bitwise or of every rank's flags, exchanged on the host."""

    def total(self, values: Sequence[float]) -> list[float]:
        """The sums of `values` over all ranks, exchanged on the host."""

    def gather(self, value: T) -> list[T]:
        """Every rank's `value` in the order of ranks; plain data only."""

    def wrap(self, model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
        """The model that training calls under autocast to `dtype`; checkpoints still save `model` itself."""

    def begin_step(self) -> None:
        """Decide before a step's first micro batch how gradients are exchanged in the whole step."""

    def accumulating(self, model: nn.Module, last: bool) -> AbstractContextManager[object]:
        """The context for one micro batch's forward and backward; `last` marks the step's last one."""

    def reduce_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace every rank's gradients by the mean over ranks, unless backward has already done it."""

    def agree_on_worst(self, found: torch.Tensor) -> None:
        """Set the scalar `found` to its largest over ranks if gradients are sharded; equal gradients need nothing."""

    def barrier(self) -> None:
        """Return when all ranks have reached this call."""

    def align_buffers(self, model: nn.Module) -> None:
        """Give all ranks rank 0's buffers (running statistics), which each updates from its own batches."""


class Alone:
    """One process: nothing to exchange."""

    rank = 0
    world = 1
    local_rank = 0
    local_world = 1
    is_sharded = False

    def __init__(self) -> None:
        self.pulse = Pulse()
        self.pulse.belong(0, 1)

    def vote(self, flags: int) -> int:
        """The flags as they are."""
        return flags

    def total(self, values: Sequence[float]) -> list[float]:
        """The values as they are."""
        return list(values)

    def gather(self, value: T) -> list[T]:
        """The one value."""
        return [value]

    def wrap(self, model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
        """The model as it is."""
        del dtype
        return model

    def begin_step(self) -> None:
        """Nothing to settle."""

    def accumulating(self, model: nn.Module, last: bool) -> AbstractContextManager[object]:
        """No context is needed."""
        del model, last
        return nullcontext()

    def reduce_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Nothing to reduce."""

    def agree_on_worst(self, found: torch.Tensor) -> None:
        """Nothing to agree on."""

    def barrier(self) -> None:
        """Nobody to wait for."""

    def align_buffers(self, model: nn.Module) -> None:
        """The buffers are the only ones."""


def on_rank_0(ranks: Ranks, act: Callable[[], T]) -> T:
    """The result of `act`, which runs on rank 0, for every rank; every rank also raises its GpudocError."""
    if ranks.world == 1:
        return act()
    found: T | None = None
    problem: tuple[str, str, int] | None = None
    if ranks.rank == 0:
        try:
            found = act()
        except GpudocError as caught:
            problem = (caught.message, caught.hint, int(caught.exit_code))
    found, problem = ranks.gather((found, problem))[0]
    if problem is not None:
        raise GpudocError(problem[0], hint=problem[1], exit_code=ExitCode(problem[2]))
    return cast(T, found)


def inside(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """The plain tensors inside a quantized tensor; empty for any other, also for a sharded one."""
    if not hasattr(tensor, "__tensor_flatten__") or hasattr(tensor, "full_tensor"):
        return {}
    return {name: getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]}


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The full tensor of a sharded one, which all ranks gather together; any other tensor unchanged."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def own_part(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a sharded tensor, sharing its memory; any other tensor unchanged."""
    take = getattr(tensor, "to_local", None)
    return tensor if take is None else take()


@contextmanager
def off_stdout() -> Iterator[None]:
    """Send C++ output inside to stderr: gloo of torch 2.9 prints a greeting on stdout, which is for the document."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
