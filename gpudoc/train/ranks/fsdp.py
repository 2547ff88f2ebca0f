"""Weights, gradients and optimizer state spread over the ranks (FSDP2), for a model that one device does not hold."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from gpudoc.train.ranks.distributed import PATIENCE_SECONDS, Distributed, Place, talking
from gpudoc.train.ranks.protocol import Ranks, off_stdout
from gpudoc.train.ranks.pulse import WORST, Pulse
from gpudoc.units import format_bytes
from gpudoc.workload.build import Workload

if TYPE_CHECKING:
    from gpudoc.train.state.sharded import Council

T = TypeVar("T")

# weights and gradients, and two numbers per weight that Adam keeps; DDP's buckets come on top
COPIES = {"SGD": 3, "Adam": 4, "AdamW": 4}
# what activations, buffers and the allocator need besides, at the least
ROOM = 0.85


def must_shard(model: nn.Module, optimizer: str, limit_bytes: int | None, *, buckets: bool = False) -> bool:
    """Whether weights, gradients and optimizer state alone fill a device of `limit_bytes`; None: not known, so no.

    `buckets`: DDP keeps memory for all gradients once more, beside those that accumulate.
    """
    if limit_bytes is None:
        return False
    held = sum(p.numel() * p.element_size() for p in model.parameters())
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return held + trained * (COPIES.get(optimizer, 4) - 1 + buckets) > ROOM * limit_bytes


class Sharded(Distributed):
    """Ranks that each hold a part of every weight. Forward and backward exchange parts, so a rank that runs out of
    memory cannot vote: it ends, and all start again from the last checkpoint."""

    def __init__(self, place: Place, device: torch.device, pulse: Pulse | None = None) -> None:
        super().__init__(place, device, pulse)
        self.is_sharded = True
        from gpudoc.train.state.sharded import Council

        with off_stdout():
            group = dist.new_group(backend="gloo", timeout=timedelta(seconds=PATIENCE_SECONDS))
        self.council = Council(group)

    def wrap(self, model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
        """The model itself, spread over the ranks: its repeated blocks one by one where it has some, then the rest.

        Weights are gathered as `dtype`, which autocast would cast them to anyway, each step and in full.
        """
        from gpudoc.workload.recompute import find_blocks

        self._start_alike(model)
        mesh = init_device_mesh(self.device.type, (self.world,))
        # autocast goes on casting what meets the weights, as it does in one process
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
        for block in find_blocks(model):
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        return model

    def begin_step(self) -> None:
        """Before a step's first micro batch: forward and backward hold collectives, always."""
        self._overlaps = True

    def accumulating(self, model: nn.Module, last: bool) -> AbstractContextManager[object]:
        """Nothing around a micro batch: each one's backward reduces, since whole gradients would not fit."""
        del model, last
        return nullcontext()

    def reduce_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Backward did it already."""
        del parameters
        self._overlaps = False

    def agree_on_worst(self, found: torch.Tensor) -> None:
        """The largest `found` of all ranks, since each saw only its own part of the gradients."""
        with talking(self.pulse, WORST):
            dist.all_reduce(found, op=dist.ReduceOp.MAX)


def council_of(ranks: Ranks) -> Council:
    """The ranks that write together; only sharded ones do."""
    assert isinstance(ranks, Sharded)
    return ranks.council


def shard_if_needed(ranks: Ranks, workload: Workload, model: nn.Module, limit_bytes: int | None) -> tuple[Ranks, str]:
    """Ranks that shard, and a sentence, where one device would not hold the training; else the ranks as they are."""
    name = workload.config.optimizer.target.partition(":")[2]
    if not isinstance(ranks, Distributed):
        return ranks, ""
    if not must_shard(model, name, limit_bytes, buckets=ranks.device.type == "cuda"):
        return ranks, ""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    sentence = (
        f"{format_bytes(weights)} of weights with their gradients and optimizer state would fill "
        f"{format_bytes(limit_bytes or 0)}: they are spread over {ranks.world} processes (FSDP2)"
    )
    return Sharded(ranks.place, ranks.device, ranks.pulse), sentence


def spread_like(full: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """`full`, which every rank holds, spread over the ranks as `like` is; as it is when `like` is not spread."""
    if not isinstance(like, DTensor):
        return full
    here = full.to(like.device)
    if "src_data_rank" in inspect.signature(distribute_tensor).parameters:
        # every rank read the same file, so nothing need be sent
        return distribute_tensor(here, like.device_mesh, like.placements, src_data_rank=None)
    return distribute_tensor(here, like.device_mesh, like.placements)


def spread_model(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A state dict of full tensors, spread as the model's own is."""
    own = model.state_dict()
    return {name: spread_like(tensor, own[name]) if name in own else tensor for name, tensor in tensors.items()}


def spread_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, object]) -> dict[str, object]:
    """An optimizer's state dict of full tensors, spread as the weights that it belongs to are."""
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
