"""WGAN (weight clipping) that learns to synthesise ECG-like beats.

Usage: python wgan_ecg.py --epochs 12
"""
import argparse

import numpy as np
import torch
from torch import nn, optim


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=12)
    p.add_argument("--iters-per-epoch", type=int, default=8)
    p.add_argument("--batch-size", type=int, default=256)
    p.add_argument("--latent-dim", type=int, default=64)
    p.add_argument("--beat-len", type=int, default=256)
    p.add_argument("--n-critic", type=int, default=5)
    p.add_argument("--clip", type=float, default=0.02)
    p.add_argument("--lr", type=float, default=5e-5)
    p.add_argument("--seed", type=int, default=11)
    return p.parse_args()


def make_beats(n, length, seed):
    """Sum of five gaussian bumps (P, Q, R, S, T) with jittered position and height."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, length, dtype=np.float32)[None, :]
    centre = np.array([0.2, 0.36, 0.4, 0.44, 0.68])
    width = np.array([0.035, 0.012, 0.014, 0.013, 0.05])
    height = np.array([0.18, -0.15, 1.0, -0.25, 0.3])
    out = np.zeros((n, length), dtype=np.float32)
    for c, w, h in zip(centre, width, height):
        cc = c + 0.01 * rng.standard_normal((n, 1))
        hh = h * (1 + 0.1 * rng.standard_normal((n, 1)))
        out += (hh * np.exp(-0.5 * ((t - cc) / w) ** 2)).astype(np.float32)
    out += 0.01 * rng.standard_normal(out.shape).astype(np.float32)
    return torch.from_numpy(np.clip(out, -1, 1))


class Generator(nn.Module):
    def __init__(self, latent_dim, beat_len):
        super().__init__()

        def block(i, o):
            return [nn.Linear(i, o), nn.LeakyReLU(0.2, inplace=True)]

        self.net = nn.Sequential(
            *block(latent_dim, 512),
            *block(512, 1024),
            *block(1024, 1024),
            nn.Linear(1024, beat_len),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self, beat_len):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(beat_len, 128),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(128, 64),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(64, 1),
        )

    def forward(self, x):
        return self.net(x)


def endless(data, batch_size):
    while True:
        perm = torch.randperm(len(data))
        for i in range(0, len(data) - batch_size + 1, batch_size):
            yield data[perm[i:i + batch_size]]


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    beats = make_beats(8192, args.beat_len, args.seed)
    batches = endless(beats, args.batch_size)

    netG = Generator(args.latent_dim, args.beat_len).to(device)
    netD = Critic(args.beat_len).to(device)
    optG = optim.RMSprop(netG.parameters(), lr=args.lr)
    optD = optim.RMSprop(netD.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        lossD_sum, lossG_sum = 0.0, 0.0
        for _ in range(args.iters_per_epoch):
            # (1) update the critic n_critic times
            for _ in range(args.n_critic):
                real = next(batches).to(device)
                z = torch.randn(args.batch_size, args.latent_dim, device=device)
                fake = netG(z)

                optD.zero_grad()
                lossD = netD(fake).mean() - netD(real).mean()
                lossD.backward()
                optD.step()

                for p in netD.parameters():
                    p.data.clamp_(-args.clip, args.clip)
                lossD_sum += lossD.item()

            # (2) update the generator once
            z = torch.randn(args.batch_size, args.latent_dim, device=device)
            optG.zero_grad()
            lossG = -netD(netG(z)).mean()
            lossG.backward()
            optG.step()
            lossG_sum += lossG.item()

        n = args.iters_per_epoch
        print(f"[{epoch + 1}/{args.epochs}] loss_D {lossD_sum / (n * args.n_critic):.6f} "
              f"loss_G {lossG_sum / n:.6f}", flush=True)

    with torch.no_grad():
        sample = netG(torch.randn(512, args.latent_dim, device=device)).cpu()
    print("sample R-peak height %.4f, real %.4f" % (sample.max(1).values.mean(), beats.max(1).values.mean()))


if __name__ == "__main__":
    main()
