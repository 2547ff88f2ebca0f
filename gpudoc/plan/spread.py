"""Traces one rank of several that share a model (FSDP2): with train's own wrapping, but without any other rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils._python_dispatch import _disable_current_modes

from gpudoc.train.ranks.fsdp import shard
from gpudoc.train.ranks.protocol import Alone
from gpudoc.workload.config import Fsdp


class Spread(Alone):
    """The first of `world` ranks that share a model: its allocations are as in training, but nothing is exchanged."""

    is_sharded = True

    def __init__(self, world: int, how: Fsdp) -> None:
        super().__init__()
        self.world = self.local_world = world
        self._how = how

    def wrap(self, model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
        """The model, spread as train spreads it."""
        with _disable_current_modes():
            mesh = init_device_mesh("cpu", (self.world,))
        # a trace cannot see where offloaded tensors are, because all its tensors are on the host
        return shard(model, mesh, dtype, self._how.model_copy(update={"offload": False}))


@contextmanager
def others_of(world: int, resized: Callable[[torch.UntypedStorage], None]) -> Iterator[None]:
    """A process group of `world` ranks in which no other rank answers; calls `resized` for storages that are emptied
    and filled again, since no operation shows that."""
    # before torch 2.10 this module is needed for the shapes of exchanged tensors
    import torch.distributed._tools.fake_collectives
    from torch.testing._internal.distributed.fake_pg import FakeStore

    original = torch.UntypedStorage.resize_

    def resize(storage: torch.UntypedStorage, size_bytes: int) -> None:
        original(storage, size_bytes)
        resized(storage)

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.UntypedStorage.resize_ = original  # type: ignore[method-assign]
        dist.destroy_process_group()
