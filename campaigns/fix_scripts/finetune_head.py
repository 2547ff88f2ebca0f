#!/usr/bin/env python
"""Linear-probe style fine tuning: keep the backbone, learn a new head.

usage: python finetune_head.py [--steps 130] [--lr 3e-3]
"""
import argparse

import torch
from torch import nn


def conv_block(cin, cout, stride=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride, 1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class Residual(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.f = nn.Sequential(conv_block(ch, ch), nn.Conv2d(ch, ch, 3, 1, 1, bias=False), nn.BatchNorm2d(ch))

    def forward(self, x):
        return torch.relu(x + self.f(x))


class Backbone(nn.Module):
    """Stand-in for the pretrained ResNet (weights come from a fixed seed)."""

    def __init__(self, width=32):
        super().__init__()
        self.stem = conv_block(3, width, stride=2)
        self.layer1 = nn.Sequential(Residual(width), Residual(width))
        self.layer2 = nn.Sequential(conv_block(width, 2 * width, 2), Residual(2 * width))
        self.layer3 = nn.Sequential(conv_block(2 * width, 4 * width, 2), Residual(4 * width))
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.out_dim = 4 * width * 4

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.stem(x))))
        return self.pool(x).flatten(1)


class Classifier(nn.Module):
    def __init__(self, backbone, num_classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Sequential(
            nn.LayerNorm(backbone.out_dim),
            nn.Linear(backbone.out_dim, 128),
            nn.GELU(),
            nn.Linear(128, num_classes),
        )

    def forward(self, x):
        feats = self.backbone(x)
        return self.head(feats)


class ToyFlowers:
    """Class = spatial frequency and orientation of a noisy grating."""

    def __init__(self, num_classes, size, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.num_classes, self.size = num_classes, size
        r = torch.linspace(0, 1, size)
        self.yy, self.xx = torch.meshgrid(r, r, indexing="ij")

    def sample(self, n):
        y = torch.randint(0, self.num_classes, (n,), generator=self.g)
        ang = y.float() / self.num_classes * 3.1416
        freq = (6 + 3 * (y % 3)).float()
        phase = torch.rand(n, generator=self.g) * 6.28
        proj = ang.cos()[:, None, None] * self.xx + ang.sin()[:, None, None] * self.yy
        img = torch.sin(6.28 * freq[:, None, None] * proj + phase[:, None, None])
        noise = 0.5 * torch.randn(n, 3, self.size, self.size, generator=self.g)
        return img[:, None] + noise, y


def get_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=130)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--num-classes", type=int, default=9)
    p.add_argument("--size", type=int, default=64)
    p.add_argument("--log-every", type=int, default=10)
    p.add_argument("--seed", type=int, default=42)
    return p.parse_args()


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    data = ToyFlowers(args.num_classes, args.size, args.seed + 1)
    model = Classifier(Backbone(), args.num_classes)
    # the backbone stays as it is: eval mode, and only the head goes to the optimizer
    model.backbone.eval()
    optimizer = torch.optim.Adam(model.head.parameters(), lr=args.lr)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)

    for step in range(1, args.steps + 1):
        x, y = data.sample(args.batch_size)
        logits = model(x)
        loss = loss_fn(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % args.log_every == 0 or step == 1:
            acc = (logits.argmax(1) == y).float().mean().item()
            print(f"step {step:3d}/{args.steps} | loss {loss.item():.5f} | acc {acc:.3f}")


if __name__ == "__main__":
    main()
