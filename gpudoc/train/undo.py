"""Taking a step back: what a step changes before its update, kept so that it can be done again bit for bit."""

from __future__ import annotations

import torch
from torch import nn

from gpudoc.train.draws import Generators, Snapshot


class Undo:
    """Keeps the random state and the buffers of the last step boundary; `back` restores them and drops gradients.

    Only buffers that a forward pass was seen to change are copied (batch norm's statistics), found by their version.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._model = model
        self._generators = Generators(device)
        self._buffers = [buffer for buffer in model.buffers() if buffer is not None]
        self._parameters = list(model.parameters())
        self._versions = [buffer._version for buffer in self._buffers]
        self._moving: list[torch.Tensor] = self._buffers
        self._copies = [buffer.detach().clone() for buffer in self._buffers]
        self._first = True
        self.snapshot: Snapshot = self._generators.snapshot()

    def mark(self, snapshot: Snapshot | None = None) -> None:
        """Remember this step boundary; about 2 µs for a model whose buffers do not move.

        A `snapshot` that the caller took, with nothing drawn since, is not taken a second time.
        """
        if self._moving:
            if self._first:
                self._first = False
            else:
                self._narrow()
            if self._moving:
                torch._foreach_copy_(self._copies, self._moving)
        self.snapshot = snapshot or self._generators.snapshot()

    def back(self) -> None:
        """Return to the marked boundary: random state, buffers, no gradients."""
        with torch.no_grad():
            if self._moving:
                torch._foreach_copy_(self._moving, self._copies)
        for parameter in self._parameters:
            parameter.grad = None
        self._generators.restore(self.snapshot)

    def keep_all_buffers(self) -> None:
        """Copy every buffer again from now on: evaluation or a new phase may move others."""
        self._moving = self._buffers
        self._copies = [buffer.detach().clone() for buffer in self._buffers]
        self._versions = [buffer._version for buffer in self._buffers]
        self._first = True

    def _narrow(self) -> None:
        if len(self._moving) != len(self._buffers):
            return
        moved = [i for i, buffer in enumerate(self._buffers) if buffer._version != self._versions[i]]
        self._moving = [self._buffers[i] for i in moved]
        self._copies = [self._copies[i] for i in moved]
