"""The nets of the benchmark of plans on the stand-in: what tests/plan/zoo.py has, at sizes that fill a card."""

from __future__ import annotations

import torch
from torch import nn

from tests.plan.zoo import BERT, GPT, T5, Llama, MoE, ResNet, UNet, ViT


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4096, 8192), nn.ReLU(), nn.Linear(8192, 8192), nn.ReLU(), nn.Linear(8192, 1000))


# name: the net, its inputs ('tokens', 'images' or 'numbers'), their size, and how many words or classes there are
NETS = {
    "gpt2-small": (lambda: GPT(50257, 768, 12, 12, 1024), "tokens", 1024, 50257),
    "gpt-384": (lambda: GPT(8192, 384, 6, 6, 512), "tokens", 512, 8192),
    "bert": (lambda: BERT(8192, 512, 6, 8, 128), "tokens", 128, 8192),
    "t5": (lambda: T5(8192, 512, 4, 8), "tokens", 128, 8192),
    "llama": (lambda: Llama(8192, 512, 6, 8, 4), "tokens", 256, 8192),
    "moe": (lambda: MoE(8192, 256, 4, 4), "tokens", 128, 8192),
    "mlp": (mlp, "numbers", 4096, 1000),
    "resnet-64": (lambda: ResNet((128, 256, 512), 1000), "images", 64, 1000),
    "resnet-224": (lambda: ResNet((64, 128, 256), 1000), "images", 224, 1000),
    "unet-64": (lambda: UNet(48), "pictures", 64, 0),
    "vit-64": (lambda: ViT(64, 8, 384, 6, 6, 1000), "images", 64, 1000),
    "vit-224": (lambda: ViT(224, 16, 384, 12, 6, 1000), "images", 224, 1000),
}


def build(name: str) -> nn.Module:
    return NETS[name][0]()


class Samples(torch.utils.data.Dataset):
    """`count` samples without content: a sample is the name of its net, so that reading costs nothing."""

    def __init__(self, name: str, count: int = 1 << 20) -> None:
        self.name, self.count = name, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> str:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self.name


def collate(names: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of the right shapes: what goes in and what is expected to come out, in memory that nobody wrote to."""
    batch = len(names)
    _, kind, size, _ = NETS[names[0]]
    match kind:
        case "tokens":
            text = torch.zeros(batch, size, dtype=torch.int64)
            return text, text.clone()
        case "numbers":
            return torch.empty(batch, size), torch.zeros(batch, dtype=torch.int64)
        case "images":
            return torch.empty(batch, 3, size, size), torch.zeros(batch, dtype=torch.int64)
        case _:
            picture = torch.empty(batch, 3, size, size)
            return picture, picture.clone()


class Loss(nn.Module):
    """Cross entropy over the last dimension, or the squared distance of two pictures."""

    def forward(self, out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if target.is_floating_point():
            return nn.functional.mse_loss(out, target)
        return nn.functional.cross_entropy(out.flatten(0, -2), target.flatten())
