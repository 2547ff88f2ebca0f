"""Steps that can be done again: the state before one, and guarded first updates, in which optimizers make theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_not
from typing import Literal

import torch
from torch import nn

from gpudoc.process.shortage import is_out_of_memory
from gpudoc.train.data.draws import Generators, Snapshot
from gpudoc.train.step.step import Micro, Stepper

# "torn": an update that may have left the weights half updated
Moment = Literal["backward", "state", "update", "torn"]
# called inside `except`, with where the step failed and its micro batches: the flags to vote with, or it raises
Judge = Callable[[Exception, Moment, Sequence[Micro]], int]

_PROBATION_STEPS = 2


class Guard:
    """Lets the optimizer step. In the first updates it tries first, on all ranks, whether the new state fits."""

    def __init__(self, stepper: Stepper, judge: Judge) -> None:
        self._stepper = stepper
        self._judge = judge
        self._guarded = _PROBATION_STEPS

    def restart(self) -> None:
        """Guard the next updates again: memory was short."""
        self._guarded = _PROBATION_STEPS

    def release(self) -> None:
        """Guard no further update."""
        self._guarded = 0

    def update(self) -> int:
        """Exchange gradients and update. Returns flags when memory ran out before anything changed.

        After a failure that changed nothing the step can be done again. `Stepper.is_updating` stays true after one
        that may have left the weights half updated.
        """
        stepper = self._stepper
        stepper.exchange()
        fresh: list[nn.Parameter] = []
        before: list[int] | None = None
        if self._guarded:
            # an update cannot be taken back, so all ranks hear first whether the state fits everywhere
            flags = stepper.parts.ranks.vote(self._try_state())
            if flags:
                return flags
            fresh, before = stepper.without_state(), self._versions()
        try:
            stepper.apply()
        except Exception as problem:
            if is_out_of_memory(problem):
                self._take_back(fresh, before)
            return self._judge(problem, "torn" if stepper.is_updating else "update", ())
        if self._guarded:
            if stepper.was_skipped():
                # SGD's fused kernel was not allowed to write the new momentum, which holds whatever the memory held
                stepper.drop_state(fresh)
            else:
                self._guarded -= 1
        return 0

    def _try_state(self) -> int:
        try:
            self._stepper.try_state()
        except Exception as problem:
            return self._judge(problem, "state", ())
        return 0

    def _take_back(self, fresh: list[nn.Parameter], before: list[int] | None) -> None:
        stepper = self._stepper
        stepper.drop_state(fresh)
        if not stepper.is_updating or (before is not None and before == self._versions()):
            stepper.forget_update()

    def _versions(self) -> list[int] | None:
        """Counters that show whether an update has begun; None for a fused optimizer, whose kernels do not count."""
        stepper = self._stepper
        if stepper.is_fused:
            return None
        states = stepper.parts.optimizer.state.values()
        held = [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]
        return [tensor._version for tensor in (*stepper.parameters, *held)]


class Undo:
    """Keeps the random state and the buffers of the last step boundary; `back` restores them and drops gradients.

    Every buffer is copied at every boundary. Nobody can know which ones move: batch norm's kernels, `.data` and an
    assignment in the forward pass all leave a tensor's version as it was.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._generators = Generators(device)
        self._parameters = list(model.parameters())
        self._places = [(module._buffers, name) for module in model.modules() for name in module._buffers]
        self._buffers: list[torch.Tensor | None] = [None] * len(self._places)
        # pairs of copies and buffers of one type, which are copied by one kernel
        self._groups: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = []
        self.mark()

    def mark(self, snapshot: Snapshot | None = None) -> None:
        """Remember this step boundary; nothing waits for the device.

        A `snapshot` that the caller took, with nothing drawn since, is not taken a second time.
        """
        buffers = [owner.get(name) for owner, name in self._places]
        if any(map(is_not, buffers, self._buffers)):
            self._buffers = buffers
            self._groups = _grouped(buffers)
        for copies, originals in self._groups:
            torch._foreach_copy_(copies, originals)
        self.snapshot = snapshot or self._generators.snapshot()

    def back(self) -> None:
        """Return to the marked boundary: random state, buffers, no gradients."""
        for (owner, name), buffer in zip(self._places, self._buffers, strict=True):
            owner[name] = buffer
        for copies, originals in self._groups:
            torch._foreach_copy_(originals, copies)
        for parameter in self._parameters:
            parameter.grad = None
        self._generators.restore(self.snapshot)


def _grouped(buffers: list[torch.Tensor | None]) -> list[tuple[list[torch.Tensor], list[torch.Tensor]]]:
    groups: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
    for buffer in buffers:
        if buffer is not None:
            groups.setdefault((buffer.device, buffer.dtype), []).append(buffer.detach())
    return [([torch.empty_like(one) for one in group], group) for group in groups.values()]
