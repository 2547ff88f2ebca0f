#!/usr/bin/env python3
"""Segmentation of overlapping blobs with a two level U-Net."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def synth(n, size, seed):
    rng = np.random.RandomState(seed)
    yy, xx = np.mgrid[:size, :size]
    imgs = rng.normal(0, 0.4, (n, 1, size, size))
    masks = np.zeros((n, 1, size, size))
    for k in range(n):
        for _ in range(rng.randint(1, 5)):
            cy, cx, r = rng.randint(0, size), rng.randint(0, size), rng.randint(4, size // 5)
            masks[k, 0] = np.maximum(masks[k, 0], (yy - cy) ** 2 + (xx - cx) ** 2 <= r * r)
        imgs[k] += masks[k] * rng.uniform(0.4, 1.0)
    return torch.from_numpy(imgs).float(), torch.from_numpy(masks).float()


def double_conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
        nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.d1 = double_conv(1, w)
        self.d2 = double_conv(w, 2 * w)
        self.mid = double_conv(2 * w, 4 * w)
        self.u2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, stride=2)
        self.c2 = double_conv(4 * w, 2 * w)
        self.u1 = nn.ConvTranspose2d(2 * w, w, 2, stride=2)
        self.c1 = double_conv(2 * w, w)
        self.out = nn.Conv2d(w, 1, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(self.pool(a))
        m = self.mid(self.pool(b))
        x = self.c2(torch.cat([self.u2(m), b], 1))
        x = self.c1(torch.cat([self.u1(x), a], 1))
        return self.out(x)


def dice(logits, target):
    p = (logits > 0).float()
    inter = (p * target).sum()
    return (2 * inter / (p.sum() + target.sum() + 1e-6)).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--size", type=int, default=64)
    ap.add_argument("--n-train", type=int, default=560)
    ap.add_argument("--n-val", type=int, default=96)
    ap.add_argument("--bs", type=int, default=16)
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=17)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    train_dl = DataLoader(
        TensorDataset(*synth(args.n_train, args.size, args.seed)), args.bs, shuffle=True
    )
    val_dl = DataLoader(TensorDataset(*synth(args.n_val, args.size, args.seed + 1)), args.bs)
    net = UNet()
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, args.lr, total_steps=args.epochs * len(train_dl))
    bce = nn.BCEWithLogitsLoss()

    for ep in range(args.epochs):
        tic = time.time()
        net.train()
        tot = 0.0
        for i, (x, y) in enumerate(train_dl):
            loss = bce(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            tot += loss.item()
            if i % 10 == 0:
                print(f"  ep {ep} it {i:3d} bce {loss.item():.5f}")
        net.eval()
        with torch.no_grad():
            scores = [dice(net(x), y) for x, y in val_dl]
        print(f"epoch {ep}: bce {tot / len(train_dl):.5f} val dice {np.mean(scores):.4f}")
        toc = time.time() - tic
    print(f"(last epoch took {toc:.0f} s)")


if __name__ == "__main__":
    main()
