"""Mixer on long sequences, as deep as it goes."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class MixerBlock(nn.Module):
    def __init__(self, dim, length):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.tokens = nn.Sequential(nn.Linear(length, 2 * length), nn.GELU(), nn.Linear(2 * length, length))
        self.channels = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, dim=64, length=128, depth=16, classes=5):
        super().__init__()
        self.inp = nn.Linear(3, dim)
        self.blocks = nn.ModuleList(MixerBlock(dim, length) for _ in range(depth))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def gestures(n, length, seed, classes=5):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=g)
    t = torch.linspace(0, 12, length)
    phase = 6 * torch.rand(n, 1, 3, generator=g)
    x = torch.sin((1 + y[:, None, None]) * t[None, :, None] + phase) + 0.4 * torch.randn(n, length, 3, generator=g)
    return x, y


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--length", type=int, default=128)
    args = ap.parse_args()
    torch.manual_seed(5)
    x, y = gestures(2000, args.length, 1)
    model = Mixer(length=args.length)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(args.steps):
        idx = torch.randint(0, len(x), (args.batch_size,))
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    print("done")


if __name__ == "__main__":
    main()
