# Cell segmentation with a mini U-Net (synthetic microscopy).
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def synth(n, size=64, seed=0):
    rng = np.random.RandomState(seed)
    yy, xx = np.mgrid[0:size, 0:size]
    xs = rng.normal(0.2, 0.15, (n, 1, size, size)).astype(np.float32)
    ms = np.zeros((n, 1, size, size), dtype=np.float32)
    for k in range(n):
        for _ in range(rng.randint(2, 6)):
            cy, cx = rng.randint(6, size - 6, 2)
            a, b = rng.uniform(4, 9, 2)
            inside = ((yy - cy) / a) ** 2 + ((xx - cx) / b) ** 2 < 1
            ms[k, 0][inside] = 1
            xs[k, 0][inside] += rng.uniform(0.15, 0.4)
    return torch.from_numpy(xs), torch.from_numpy(ms)


class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.c1 = nn.Conv2d(i, o, 3, padding=1)
        self.n1 = nn.BatchNorm2d(o)
        self.c2 = nn.Conv2d(o, o, 3, padding=1)
        self.n2 = nn.BatchNorm2d(o)

    def forward(self, x):
        x = F.relu(self.n1(self.c1(x)))
        return F.relu(self.n2(self.c2(x)))


class MiniUNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.d1, self.d2, self.mid = Block(1, w), Block(w, 2 * w), Block(2 * w, 4 * w)
        self.u2, self.u1 = Block(6 * w, 2 * w), Block(3 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        y = self.u2(torch.cat([F.interpolate(m, scale_factor=2), b], 1))
        y = self.u1(torch.cat([F.interpolate(y, scale_factor=2), a], 1))
        return self.out(y)


def soft_dice(logits, mask):
    p = torch.sigmoid(logits)
    inter = (p * mask).sum(dim=(1, 2, 3))
    return (2 * inter + 1) / (p.sum(dim=(1, 2, 3)) + mask.sum(dim=(1, 2, 3)) + 1)


class Segmenter:
    def __init__(self, lr=2e-3):
        self.model = MiniUNet()
        self.optim = torch.optim.Adam(self.model.parameters(), lr=lr)

    def loss(self, logits, mask):
        return F.binary_cross_entropy_with_logits(logits, mask) + 1 - soft_dice(logits, mask).mean()

    def fit_epoch(self, xs, ms, bs=6):
        self.model.train()
        seen = 0.0
        order = torch.randperm(len(xs))
        for i in range(0, len(xs), bs):
            idx = order[i:i + bs]
            loss = self.loss(self.model(xs[idx]), ms[idx])
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
            seen += loss.item() * len(idx)
        return seen / len(xs)

    def validate(self, xs, ms, bs=16):
        self.model.eval()
        outs = []
        for i in range(0, len(xs), bs):
            outs.append(self.model(xs[i:i + bs]))
        logits = torch.cat(outs)
        return self.loss(logits, ms).item(), soft_dice(logits, ms).mean().item()


if __name__ == "__main__":
    torch.manual_seed(5)
    train_x, train_m = synth(360, seed=1)
    val_x, val_m = synth(256, seed=2)
    seg = Segmenter()
    best = 0.0
    for epoch in range(5):
        tr = seg.fit_epoch(train_x, train_m)
        vl, dice = seg.validate(val_x, val_m)
        best = max(best, dice)
        print(f"epoch {epoch} train {tr:.4f} val {vl:.4f} dice {dice:.4f}")
    print(f"best dice {best:.4f}")
