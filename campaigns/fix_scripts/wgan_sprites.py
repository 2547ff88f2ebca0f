"""Wasserstein GAN (weight clipping) on tiny procedurally drawn sprites."""
import argparse

import torch
import torch.nn as nn


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--iters", type=int, default=100)
    p.add_argument("--critic-iters", type=int, default=4)
    p.add_argument("--batch", type=int, default=48)
    p.add_argument("--z", type=int, default=48)
    p.add_argument("--clip", type=float, default=0.03)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def draw_sprites(n):
    """Mirror-symmetric little monsters, n x 3 x 32 x 32 in [-1, 1]."""
    half = (torch.rand(n, 1, 8, 4) > 0.5).float()
    body = torch.cat([half, half.flip(3)], dim=3)
    body[:, :, 0] = 0
    body[:, :, -1] = 0
    color = torch.rand(n, 3, 1, 1)
    img = nn.functional.interpolate(body * color, scale_factor=4, mode="nearest")
    return img * 2 - 1


def dense(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, n_out), nn.BatchNorm1d(n_out), nn.ReLU())


class Generator(nn.Module):
    def __init__(self, z):
        super().__init__()
        self.body = nn.Sequential(dense(z, 512), dense(512, 1024), nn.Linear(1024, 3 * 32 * 32), nn.Tanh())

    def forward(self, z):
        return self.body(z).view(-1, 3, 32, 32)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(),
            nn.Linear(3 * 32 * 32, 64), nn.LeakyReLU(0.2),
            nn.Linear(64, 64), nn.LeakyReLU(0.2),
            nn.Linear(64, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def main():
    args = parse()
    torch.manual_seed(args.seed)
    data = draw_sprites(3000)
    gen, critic = Generator(args.z), Critic()
    opt_g = torch.optim.RMSprop(gen.parameters(), lr=args.lr)
    opt_c = torch.optim.RMSprop(critic.parameters(), lr=args.lr)

    for it in range(1, args.iters + 1):
        for _ in range(args.critic_iters):
            real = data[torch.randint(0, len(data), (args.batch,))]
            noise = torch.randn(args.batch, args.z)
            fake = gen(noise)
            opt_c.zero_grad()
            loss_c = critic(fake).mean() - critic(real).mean()
            loss_c.backward()
            opt_c.step()
            with torch.no_grad():
                for w in critic.parameters():
                    w.clamp_(-args.clip, args.clip)

        for w in critic.parameters():
            w.requires_grad_(False)
        opt_g.zero_grad()
        loss_g = -critic(gen(torch.randn(args.batch, args.z))).mean()
        loss_g.backward()
        opt_g.step()
        for w in critic.parameters():
            w.requires_grad_(True)

        if it % 20 == 0:
            print(f"[{it:4d}] critic {loss_c.item():+.5f}  gen {loss_g.item():+.5f}")


if __name__ == "__main__":
    main()
