"""Self-supervised pretraining on inertial sensor windows (NT-Xent, after SimCLR)."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_windows(n, channels, length, gen):
    """Sums of a few sines per window; the window's activity fixes the frequencies."""
    t = torch.linspace(0, 1, length)
    activity = torch.randint(0, 6, (n,), generator=gen)
    base = 2.0 + 3.0 * activity.float()
    phase = 2 * math.pi * torch.rand(n, channels, 1, generator=gen)
    amp = 0.5 + torch.rand(n, channels, 1, generator=gen)
    x = amp * torch.sin(2 * math.pi * base[:, None, None] * t + phase)
    x = x + 0.5 * torch.sin(4 * math.pi * base[:, None, None] * t + 2 * phase)
    return x + 0.1 * torch.randn(n, channels, length, generator=gen), activity


class Encoder(nn.Module):
    def __init__(self, channels, width, dim):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(channels, width, 7, stride=2, padding=3),
            nn.GELU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.GELU(),
            nn.AdaptiveAvgPool1d(4),
            nn.Flatten(),
        )
        self.head = nn.Sequential(nn.Linear(4 * width, 128), nn.GELU(), nn.Linear(128, dim))

    def forward(self, x):
        return self.head(self.body(x))


class NTXentLoss(nn.Module):
    def __init__(self, batch_size, temperature):
        super().__init__()
        self.temperature = temperature
        n = 2 * batch_size
        self.register_buffer("self_mask", torch.eye(n, dtype=torch.bool))
        self.register_buffer("target", torch.arange(n).roll(batch_size))

    def forward(self, za, zb):
        z = torch.cat([za, zb])
        sim = F.cosine_similarity(z.unsqueeze(1), z.unsqueeze(0), dim=-1)
        sim = sim / self.temperature
        sim = sim.masked_fill(self.self_mask, float("-inf"))
        return F.cross_entropy(sim, self.target)


def augment(x, gen):
    """Random scale per channel, jitter, and a circular shift shared by the batch."""
    scale = 1.0 + 0.2 * torch.randn(x.size(0), x.size(1), 1, generator=gen)
    noise = 0.05 * torch.randn(x.shape, generator=gen)
    shift = int(torch.randint(0, x.size(2), (1,), generator=gen))
    return (x * scale + noise).roll(shift, dims=2)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--batch-size", type=int, default=112)
    p.add_argument("--dim", type=int, default=64)
    p.add_argument("--temperature", type=float, default=0.5)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=3)
    args = p.parse_args()

    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    data, _ = make_windows(3000, 6, 128, gen)

    encoder = Encoder(6, 32, args.dim)
    criterion = NTXentLoss(args.batch_size, args.temperature)
    opt = torch.optim.SGD(encoder.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)

    running = torch.zeros(())
    for step in range(1, args.steps + 1):
        idx = torch.randint(0, data.size(0), (args.batch_size,), generator=gen)
        x = data[idx]
        za = encoder(augment(x, gen))
        zb = encoder(augment(x, gen))
        loss = criterion(za, zb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.detach()
        if step % 20 == 0:
            print(f"step {step:4d}  nt-xent {running.item() / 20:.5f}")
            running.zero_()


if __name__ == "__main__":
    main()
