"""One optimizer step on a list of micro batches: forward, backward, check, clip, update. No waiting for the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import nn

from gpudoc.train.meter.meters import Meter, clock
from gpudoc.train.meter.waits import Waits
from gpudoc.train.ranks.protocol import Alone, Ranks, own_part, whole
from gpudoc.train.state.staging import Copying
from gpudoc.train.step.precision import Precision
from gpudoc.train.step.utilisation import Cost
from gpudoc.workload.batch import Batch, tensors_in, to_device
from gpudoc.workload.build import Step
from gpudoc.workload.flops import Counter


class Micro(NamedTuple):
    """A batch on the host and its share of the step's loss: its items over the global batch's, times the ranks."""

    batch: Batch
    share: float


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The objects that a step uses; a step calls `forward`: the model itself, wrapped by DDP, or compiled.

    `is_compiled` is also true if blocks inside the model are compiled, `replays_graphs` if compiled code runs as CUDA
    graphs.
    """

    model: nn.Module
    forward: Callable[..., object]
    optimizer: torch.optim.Optimizer
    step: Step
    device: torch.device
    precision: Precision
    grad_clip: float | None = None
    channels_last: bool = False
    is_compiled: bool = False
    replays_graphs: bool = False
    ranks: Ranks = field(default_factory=Alone)

    def begin(self) -> None:
        """Tell CUDA graphs, if there are any, that the results of the previous step are no longer needed."""
        if self.replays_graphs:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]


class Losses:
    """Scalars in the order of arrival. On a GPU they stay there until `take` copies them all at once.

    On a CPU they are read immediately: a tensor that is kept lies in the heap above a batch that is freed, so the
    heap grows with every tensor (by 10 MiB in 50 steps of an MLP with batches of 312 KiB, glibc 2.36, 2026-11-23).
    """

    def __init__(self, device: torch.device) -> None:
        self._on_host = device.type == "cpu"
        self._read: list[float] = []
        self._waiting: list[torch.Tensor] = []

    def add(self, loss: torch.Tensor) -> None:
        """Keep another loss, a scalar without a graph."""
        if self._on_host:
            self._read.append(loss.item())
        else:
            self._waiting.append(loss)

    def take(self) -> list[float]:
        """The losses since the last call; waits for the device."""
        if self._waiting:
            self._read += torch.stack(self._waiting).double().tolist()
            self._waiting.clear()
        taken, self._read = self._read, []
        return taken


class Stepper:
    """Runs steps. `backward` may run out of memory and be repeated after an undo; so may the update up to `apply`.

    `losses` collects one scalar per step for the log.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.parameters = [parameter for parameter in parts.model.parameters() if parameter.requires_grad]
        self.losses = Losses(parts.device)
        self.scaler = torch.amp.GradScaler(parts.device.type) if parts.precision.needs_scaler else None
        self._on_host = on_host = parts.device.type == "cpu"
        takes_found = bool(getattr(parts.optimizer, "_step_supports_amp_scaling", False))
        self.syncs_every_step = not on_host and not takes_found and self.scaler is None
        # a flag on the device can make a fused optimizer change nothing
        self.is_fused = takes_found
        self.is_updating = False
        self._skips_on_device = not on_host and takes_found and self.scaler is None
        self._moves = not on_host or parts.channels_last
        # created once: it does not change between steps
        self._autocast = None if parts.precision.name == "fp32" else parts.precision.autocast(parts.device)
        self._found = torch.zeros((), device=parts.device)
        self._found_is_zero = True
        self._one = torch.ones((), device=parts.device)
        self._skipped_on_device = torch.zeros((), device=parts.device)
        self._counts_on_device = self._skips_on_device or self.scaler is not None
        self._skipped_on_host = 0
        self._loss: torch.Tensor = self._found
        self.grad_norm: torch.Tensor | None = None
        self._has_gradients = True
        self.meter = Meter(parts.device)
        self.waits = Waits(parts.device, self.meter.communicate) if parts.ranks.is_sharded else None
        self._watching: AbstractContextManager[None] = self.waits or nullcontext()
        # a checkpoint whose copies from the device may still read the tensors that the next update writes
        self.copying: Copying | None = None
        self.cost = Cost()
        self.count()
        self._copies: torch.cuda.Stream | None = _stream(parts.device) if parts.device.type == "cuda" else None

    def run(self, micros: Sequence[Micro]) -> None:
        """One whole step."""
        self.backward(micros)
        self.update()

    def backward(self, micros: Sequence[Micro]) -> None:
        """Compute new gradients of the mean loss over all items of the step; errors of the model pass through."""
        self.free_gradients()
        self._has_gradients = True
        parts = self.parts
        # once per step: the gradients of one micro batch must survive the forward pass of the next
        parts.begin()
        total: torch.Tensor | None = None
        last = len(micros) - 1
        alone = parts.ranks.world == 1
        if not alone:
            parts.ranks.begin_step()
        for number, micro in enumerate(micros):
            if alone:
                loss = self._compute(micro)
            else:
                with parts.ranks.accumulating(parts.forward, number == last), self._watching:  # type: ignore[arg-type]
                    loss = self._compute(micro)
            total = loss if total is None else total + loss
        assert total is not None
        self._loss = total

    def free_gradients(self) -> None:
        """Free the memory of the gradients: after the update only the log needs them."""
        if self._has_gradients:
            for parameter in self.parameters:
                parameter.grad = None
            self._has_gradients = False

    def update(self) -> None:
        """Reduce over ranks, clip, and let the optimizer step unless a gradient is not finite."""
        self.exchange()
        self.apply()

    def exchange(self) -> None:
        """Reduce gradients over ranks, and wait for a checkpoint that still reads the tensors that an update writes."""
        if self.parts.ranks.world > 1:
            self._reduce()
        if self.copying is not None:
            self.copying.hold_update()
            self.copying = None

    def without_state(self) -> list[nn.Parameter]:
        """The parameters that have a gradient but no optimizer state yet."""
        state = self.parts.optimizer.state
        return [p for p in self.parameters if p.grad is not None and not state.get(p)]

    def try_state(self) -> None:
        """Let a fused optimizer create its state and change nothing; raises if there is no memory for it.

        The state is dropped again: the update then creates it once more, in the memory that is free again.
        """
        if not self.is_fused:
            return
        optimizer, fresh = self.parts.optimizer, self.without_state()
        # the same as after a gradient that is not finite: the kernels leave everything as it is
        optimizer.found_inf, optimizer.grad_scale = self._one, None  # type: ignore[attr-defined]
        try:
            optimizer.step()
        finally:
            del optimizer.found_inf, optimizer.grad_scale  # type: ignore[attr-defined]
            self.drop_state(fresh)

    def drop_state(self, of: Sequence[nn.Parameter]) -> None:
        """Drop the optimizer's state of these parameters; the next step starts it again."""
        for parameter in of:
            self.parts.optimizer.state.pop(parameter, None)

    def was_skipped(self) -> bool:
        """Whether the last update changed nothing because gradients were not finite; waits for the device."""
        return bool(self._found.item())

    def apply(self) -> None:
        """Clip, and let the optimizer step unless a gradient is not finite."""
        if self.scaler is not None:
            self._update_scaled(self.scaler)
        else:
            self._update_plain()
        self.losses.add(self._loss)

    def num_skipped(self) -> int:
        """The number of steps so far that changed nothing because gradients were not finite; waits for the device."""
        return int(self._skipped_on_device.item()) if self._counts_on_device else self._skipped_on_host

    def norm_of_gradients(self) -> float | None:
        """The last step's gradient norm before clipping; None if there are no gradients. Waits for the device."""
        if self.grad_norm is not None:
            return float(whole(self.grad_norm).item())
        gradients = [p.grad for p in self.parameters if p.grad is not None and not p.grad.is_sparse]
        if not gradients:
            return None
        if self.parts.ranks.is_sharded:
            mine = sum(float(torch.linalg.vector_norm(part).item()) ** 2 for part in map(own_part, gradients))
            return math.sqrt(self.parts.ranks.total([mine])[0])
        norms = torch._foreach_norm(gradients)
        if self._on_host:
            return math.hypot(*(norm.item() for norm in norms))
        together = torch.stack([norm.float().to(self.parts.device) for norm in norms])
        return float(torch.linalg.vector_norm(together).item())

    def scale(self) -> float | None:
        """The loss scale of fp16; None for other formats."""
        return None if self.scaler is None else float(self.scaler.get_scale())

    def count(self) -> None:
        """Count the FLOPs of the next micro batch that succeeds; those of a compiled function cannot be counted."""
        self.meter.look_again()
        self._compute = self._one_micro if self.parts.is_compiled else self._counted

    def _counted(self, micro: Micro) -> torch.Tensor:
        """Run a micro batch and count its FLOPs; the next one runs without counting."""
        with Counter() as counter:
            loss = self._one_micro(micro)
        self._compute = self._one_micro
        own_means = bool(getattr(self.parts.model, "is_gradient_checkpointing", False))
        self.cost = Cost.of(micro.batch, counter, is_mixed=own_means)
        return loss

    def _one_micro(self, micro: Micro) -> torch.Tensor:
        parts = self.parts
        batch = micro.batch
        if self._moves:
            batch = self._move(batch)
        if self._autocast is not None:
            with self._autocast:
                loss = parts.step.loss(parts.forward, batch)
        else:
            loss = parts.step.loss(parts.forward, batch)
        if micro.share != 1.0:
            loss = loss * micro.share
        graded = loss if self.scaler is None else self.scaler.scale(loss)
        if parts.ranks.world > 1:
            self.meter.watch_backward(graded)
        graded.backward()  # type: ignore[no-untyped-call]
        if parts.ranks.world > 1:
            self.meter.backward_done()
        # the next replay of a CUDA graph overwrites its output
        return loss.detach().clone() if parts.replays_graphs else loss.detach()

    def _move(self, batch: Batch) -> Batch:
        """The batch on the device. The copy runs in a separate stream, while the earlier work is computed."""
        parts = self.parts
        if self._copies is None:
            return to_device(batch, parts.device, channels_last=parts.channels_last)
        began = clock()
        with torch.cuda.stream(self._copies):
            moved = to_device(batch, parts.device, channels_last=parts.channels_last)
        self.meter.copying += clock() - began
        current = torch.cuda.current_stream(parts.device)
        self.meter.transfer.start()
        current.wait_stream(self._copies)
        self.meter.transfer.stop()
        for tensor in tensors_in(moved):
            # otherwise its memory could be reused while the computation still reads it
            tensor.record_stream(current)
        return moved

    def _reduce(self) -> None:
        self.meter.communicate.start()
        self.parts.ranks.reduce_gradients(self.parameters)
        self.meter.communicate.stop()

    def _update_plain(self) -> None:
        parts = self.parts
        self._check_finite()
        if parts.grad_clip is not None:
            self.grad_norm = nn.utils.clip_grad_norm_(self.parameters, parts.grad_clip)
        if self._skips_on_device:
            # the fused kernels leave weights and state alone if found_inf is 1
            parts.optimizer.found_inf = self._found  # type: ignore[attr-defined]
            parts.optimizer.grad_scale = None  # type: ignore[attr-defined]
            self.is_updating = True
            parts.optimizer.step()
            self._skipped_on_device += self._found
        elif self._found.item():
            self._skipped_on_host += 1
        else:
            self._found_is_zero = True
            self.is_updating = True
            parts.optimizer.step()
        self.is_updating = False

    def forget_update(self) -> None:
        """Allow gradients to be unscaled once more, after an update that failed before it changed anything."""
        self.is_updating = False
        if self.scaler is not None:
            self.scaler.update(self.scaler.get_scale())

    def _update_scaled(self, scaler: torch.amp.GradScaler) -> None:
        optimizer = self.parts.optimizer
        scaler.unscale_(optimizer)
        self._check_finite()
        if self.parts.grad_clip is not None:
            self.grad_norm = nn.utils.clip_grad_norm_(self.parameters, self.parts.grad_clip)
        self.is_updating = True
        scaler.step(optimizer)
        self.is_updating = False
        scaler.update()
        self._skipped_on_device += self._found

    def _check_finite(self) -> None:
        """Set `_found` to 1 if any gradient holds inf or NaN: one fused pass, without waiting for it."""
        gradients = [gradient for parameter in self.parameters if (gradient := parameter.grad) is not None]
        if self.parts.ranks.is_sharded:
            gradients = [own_part(gradient) for gradient in gradients]
        if not self._found_is_zero:
            self._found.zero_()
        self._found_is_zero = False
        try:
            torch._amp_foreach_non_finite_check_and_unscale_(gradients, self._found, self._one)
        except RuntimeError:
            # the fused pass does not accept sparse gradients or those of unusual types
            for gradient in gradients:
                values = gradient.coalesce().values() if gradient.is_sparse else gradient
                finite = torch.isfinite(values).all()
                self._found.copy_(torch.maximum(self._found, (~finite).to(self._found)))
        if self.parts.ranks.world > 1:
            self.parts.ranks.agree_on_worst(self._found)


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
