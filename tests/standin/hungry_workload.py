"""A workload that asks the device for memory it never touches: per sample, in the phase that a test names."""

from __future__ import annotations

import os

import torch
from torch import nn

MIB = 2**20


class Rows(torch.utils.data.Dataset):
    """Rows with a first column that says how hungry they are: 12 for number `large`, else 1."""

    def __init__(self, count=64, large=-1):
        self.count, self.large = count, large

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(16, generator=generator)
        x[0] = 12.0 if index == self.large else 1.0
        return x, torch.randn(1, generator=generator)


class Keep(torch.autograd.Function):
    """Holds `forward` bytes from forward to backward, which asks for `backward` bytes more."""

    @staticmethod
    def forward(ctx, x, forward, backward):
        ctx.kept, ctx.backward_bytes = torch.empty(forward, dtype=torch.uint8, device=x.device), backward
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        torch.empty(ctx.backward_bytes, dtype=torch.uint8, device=gradient.device)
        return gradient.clone(), None, None


class Hungry(nn.Module):
    """MiB per sample: `forward` until backward, `backward` inside it, `evaluate` without gradients; `idle` after all.

    `bulk` MiB are weights that no product needs. `rank` is the one that is hungry, every rank when None.
    """

    def __init__(self, forward=0, backward=0, evaluate=0, idle=0, bulk=0, rank=None, norm=True):
        super().__init__()
        self.mib = {"forward": forward, "backward": backward, "evaluate": evaluate, "idle": idle}
        self.is_hungry = rank is None or os.environ.get("RANK") == str(rank)
        middle = nn.BatchNorm1d(16) if norm else nn.LayerNorm(16)
        self.first = nn.Sequential(nn.Linear(16, 16), middle, nn.Dropout(0.2))
        self.bulk = nn.Parameter(torch.zeros(bulk * MIB // 4)) if bulk else None
        self.last = nn.Linear(16, 1)

    def forward(self, x):
        share = int(len(x) * x[:, 0].max().item()) * MIB if self.is_hungry else 0
        if self.training:
            x = Keep.apply(self.first(x), self.mib["forward"] * share, self.mib["backward"] * share)
            # what a user's model may keep for later: it is there while the optimizer steps
            self.kept = None
            self.kept = torch.empty(self.mib["idle"] * share, dtype=torch.uint8, device=x.device)
        else:
            torch.empty(self.mib["evaluate"] * share, dtype=torch.uint8, device=x.device)
            x = self.first(x)
        if self.bulk is not None:
            x = x + self.bulk.mean()
        return self.last(x)


class Block(nn.Module):
    """MiB per sample that it asks for where it is computed a second time: `again`."""

    def __init__(self, again):
        super().__init__()
        self.again, self.calls = again, 0
        self.inner = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.2))

    def forward(self, x):
        self.calls += 1
        if self.calls > 1:
            torch.empty(self.again * len(x) * MIB, dtype=torch.uint8, device=x.device)
        return self.inner(x)


class Recomputed(nn.Module):
    """Two blocks, which activation checkpointing computes again in backward."""

    def __init__(self, again):
        super().__init__()
        self.blocks, self.last = nn.ModuleList([Block(again), Block(again)]), nn.Linear(16, 1)

    def forward(self, x):
        for block in self.blocks:
            block.calls = 0
            x = block(x)
        return self.last(x)


def build_model(again=0, **arguments):
    return Recomputed(again) if again else Hungry(**arguments)
