"""Taking a step back: what a step changes before its update, kept so that it can be done again bit for bit."""

from __future__ import annotations

from operator import is_not

import torch
from torch import nn

from gpudoc.train.data.draws import Generators, Snapshot


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
