"""Weights, gradients and optimizer state sharded over the ranks (FSDP2), for a model too large for one device."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from gpudoc.train.ranks.distributed import PATIENCE_SECONDS, Distributed, talking
from gpudoc.train.ranks.meeting import Place
from gpudoc.train.ranks.protocol import Ranks, off_stdout
from gpudoc.train.ranks.pulse import WORST, Pulse
from gpudoc.units import format_bytes
from gpudoc.workload.build import Workload
from gpudoc.workload.config import Fsdp

if TYPE_CHECKING:
    from gpudoc.train.state.shards import Council

# weights, gradients, and two numbers per weight that Adam keeps; DDP's buckets are extra
COPIES = {"SGD": 3, "Adam": 4, "AdamW": 4}
# the rest is the minimum for activations, buffers and the allocator
ROOM = 0.85
# the first step allocates the optimizer's state; after the third step nothing new is allocated
_SETTLED_STEPS = 3
# the share of the device kept for extra needs of later steps: a longer sample, an evaluation, fragmentation
_SPARE_SHARE = 0.1
_AS_EVER = Fsdp()


def must_shard(model: nn.Module, optimizer: str, limit_bytes: int | None, *, buckets: bool = False) -> bool:
    """Whether weights, gradients and optimizer state alone fill a device of `limit_bytes`; False if that is None.

    `buckets`: DDP keeps memory for all gradients a second time, besides those that accumulate.
    """
    if limit_bytes is None:
        return False
    held = sum(p.numel() * p.element_size() for p in model.parameters())
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return held + trained * (COPIES.get(optimizer, 4) - 1 + buckets) > ROOM * limit_bytes


def shard(model: nn.Module, mesh: DeviceMesh, dtype: torch.dtype, how: Fsdp) -> nn.Module:
    """The model itself, sharded over `mesh`: its repeated blocks one by one if it has some, then the rest.

    Weights are gathered as `dtype`: autocast would cast all of them to it in each step anyway.
    """
    from gpudoc.workload.recompute import find_blocks

    # autocast still casts the inputs of the weights, as in one process
    sums = torch.float32 if how.reduce == "fp32" else None
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=sums, cast_forward_inputs=False)
    offload = CPUOffloadPolicy(pin_memory=mesh.device_type == "cuda") if how.offload else OffloadPolicy()
    blocks = find_blocks(model)
    for block in blocks:
        again = how.reshard != "never"
        fully_shard(block, mesh=mesh, mp_policy=policy, offload_policy=offload, reshard_after_forward=again)
    fully_shard(model, mesh=mesh, mp_policy=policy, offload_policy=offload)
    in_order = cast("list[FSDPModule]", [model, *blocks])
    for place, module in enumerate(in_order):
        module.set_modules_to_forward_prefetch(in_order[place + 1 : place + 1 + how.prefetch])
        if how.prefetch > 1 and place:
            # FSDP by default gathers one block ahead in backward
            module.set_modules_to_backward_prefetch(in_order[max(1, place - how.prefetch) : place][::-1])
    return model


def keep_gathered(model: nn.Module) -> None:
    """Keep gathered weights of blocks until their backward from now on: saves one exchange in three."""
    for module in model.modules():
        if module is not model and isinstance(module, FSDPModule):
            module.set_reshard_after_forward(False, recurse=False)


class Sharded(Distributed):
    """Ranks that each hold a part of every weight. Forward and backward exchange parts, so a rank that runs out of
    memory cannot vote: it ends, and all start again from the last checkpoint."""

    def __init__(
        self,
        place: Place,
        device: torch.device,
        how: Fsdp = _AS_EVER,
        limit_bytes: int | None = None,
        pulse: Pulse | None = None,
    ) -> None:
        super().__init__(place, device, pulse)
        self.is_sharded = True
        self._how = how
        self._limit_bytes = limit_bytes
        self._model: nn.Module | None = None
        self._gathered_bytes = self._steps = self._peak_bytes = 0
        from gpudoc.train.state.shards import Council

        with off_stdout():
            group = dist.new_group(backend="gloo", timeout=timedelta(seconds=PATIENCE_SECONDS))
        self.council = Council(group)

    def wrap(self, model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
        """The model itself, sharded over the ranks as the settings say."""
        self._start_alike(model)
        self._gathered_bytes = sum(p.numel() for p in model.parameters()) * dtype.itemsize
        self._model = shard(model, init_device_mesh(self.device.type, (self.world,)), dtype, self._how)
        return model

    def begin_step(self) -> None:
        """Note before a step's first micro batch that its forward and backward contain collectives, as always here."""
        self.is_overlapping = True
        if self._how.reshard == "auto" and self._steps == _SETTLED_STEPS and self._model is not None:
            # every rank must gather as often as the others, so the one with the least room decides
            if not self.total([float(not self._has_room())])[0]:
                keep_gathered(self._model)
            self._steps += 1

    def _has_room(self) -> bool:
        """Whether the measured memory leaves room for all gathered weights at once; False if it is not measured."""
        if self._limit_bytes is None or self.device.type != "cuda":
            return False
        free, _ = torch.cuda.mem_get_info(self.device)
        most = min(self._limit_bytes, free + torch.cuda.memory_reserved(self.device))
        return self._peak_bytes + self._gathered_bytes < (1 - _SPARE_SHARE) * most

    def accumulating(self, model: nn.Module, last: bool) -> AbstractContextManager[object]:
        """An empty context: the backward of every micro batch reduces, since whole gradients would not fit."""
        del model, last
        return nullcontext()

    def reduce_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Only read the peak memory: backward has already reduced the gradients."""
        del parameters
        self.is_overlapping = False
        if self._steps < _SETTLED_STEPS:
            self._steps += 1
            if self.device.type == "cuda":
                self._peak_bytes = max(self._peak_bytes, torch.cuda.max_memory_allocated(self.device))

    def agree_on_worst(self, found: torch.Tensor) -> None:
        """Set `found` to the largest of all ranks, since each saw only its own part of the gradients."""
        with talking(self.pulse, WORST):
            dist.all_reduce(found, op=dist.ReduceOp.MAX)


def council_of(ranks: Ranks) -> Council:
    """The council of ranks that write together; only sharded ranks have one."""
    assert isinstance(ranks, Sharded)
    return ranks.council


def shard_if_needed(
    ranks: Ranks,
    workload: Workload,
    model: nn.Module,
    limit_bytes: int | None,
    how: Fsdp = _AS_EVER,
) -> tuple[Ranks, str]:
    """Sharded ranks and a sentence if one device cannot hold the training; else the ranks as they are and ''."""
    name = workload.config.optimizer.target.partition(":")[2]
    if not isinstance(ranks, Distributed):
        return ranks, ""
    if not how.offload and not must_shard(model, name, limit_bytes, buckets=ranks.device.type == "cuda"):
        return ranks, ""
    weights = format_bytes(sum(p.numel() * p.element_size() for p in model.parameters()))
    spread = f"spread over {ranks.world} processes (FSDP2)"
    if how.offload:
        sentence = f"{weights} of weights with their gradients and optimizer state lie in the host's memory, {spread}"
    else:
        full = format_bytes(limit_bytes or 0)
        sentence = f"{weights} of weights with their gradients and optimizer state would fill {full}: they are {spread}"
    return Sharded(ranks.place, ranks.device, how, limit_bytes, ranks.pulse), sentence


def spread_like(full: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """`full`, which every rank holds, sharded in the same way as `like`; unchanged if `like` is not sharded."""
    if not isinstance(like, DTensor):
        return full
    here = full.to(like.device)
    if "src_data_rank" in inspect.signature(distribute_tensor).parameters:
        # every rank read the same file, so nothing must be sent
        return distribute_tensor(here, like.device_mesh, like.placements, src_data_rank=None)
    return distribute_tensor(here, like.device_mesh, like.placements)


def spread_model(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A state dict of full tensors, sharded in the same way as the model's own."""
    own = model.state_dict()
    return {name: spread_like(tensor, own[name]) if name in own else tensor for name, tensor in tensors.items()}


def spread_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, object]) -> dict[str, object]:
    """An optimizer's state dict of full tensors, sharded in the same way as its weights."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbers = [
        number for group in cast("list[dict[str, list[int]]]", state["param_groups"]) for number in group["params"]
    ]
    of_number = dict(zip(numbers, parameters, strict=True))
    rows = cast("Mapping[int, Mapping[str, object]]", state["state"])
    spread = {number: _spread_row(row, of_number[number]) for number, row in rows.items()}
    return {**state, "state": spread}


def _spread_row(row: Mapping[str, object], parameter: torch.Tensor) -> dict[str, object]:
    return {
        key: spread_like(value, parameter)
        if isinstance(value, torch.Tensor) and value.shape == parameter.shape
        else value
        for key, value in row.items()
    }
