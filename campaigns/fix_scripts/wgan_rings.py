"""WGAN-GP on a mixture of rings. Nothing fancy, I only want to see the critic loss behave."""
import argparse
import math
import time

import torch
import torch.nn as nn

torch.manual_seed(1234)
torch.autograd.set_detect_anomaly(True)

RADII = torch.tensor([0.5, 1.0, 1.5])
Z_DIM = 16
N_CRITIC = 3
GP_WEIGHT = 10.0


def sample_rings(n, gen):
    which = torch.randint(0, len(RADII), (n,), generator=gen)
    angle = torch.rand(n, generator=gen) * 2 * math.pi
    r = RADII[which] + 0.02 * torch.randn(n, generator=gen)
    return torch.stack([r * angle.cos(), r * angle.sin()], dim=1)


def mlp(n_in, n_out, width=128, depth=3):
    layers = [nn.Linear(n_in, width), nn.LeakyReLU(0.2)]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.LeakyReLU(0.2)]
    layers.append(nn.Linear(width, n_out))
    return nn.Sequential(*layers)


def gradient_penalty(critic, real, fake, gen):
    eps = torch.rand(real.size(0), 1, generator=gen)
    mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
    score = critic(mix)
    grad = torch.autograd.grad(
        outputs=score.sum(), inputs=mix, create_graph=True, retain_graph=True
    )[0]
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


@torch.no_grad()
def ring_distance(generator, gen, n=2000):
    """mean distance between a generated point and the closest ring"""
    pts = generator(torch.randn(n, Z_DIM, generator=gen))
    return (pts.norm(dim=1, keepdim=True) - RADII).abs().min(dim=1).values.mean().item()


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--steps", type=int, default=350, help="generator updates per epoch")
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--log-every", type=int, default=50)
args = parser.parse_args()

gen = torch.Generator().manual_seed(99)
G = mlp(Z_DIM, 2)
D = mlp(2, 1)
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.9))

for epoch in range(args.epochs):
    t0 = time.time()
    for step in range(1, args.steps + 1):
        for _ in range(N_CRITIC):
            real = sample_rings(args.batch, gen)
            with torch.no_grad():
                fake = G(torch.randn(args.batch, Z_DIM, generator=gen))
            d_loss = D(fake).mean() - D(real).mean()
            d_loss = d_loss + GP_WEIGHT * gradient_penalty(D, real, fake, gen)
            opt_d.zero_grad()
            d_loss.backward()
            opt_d.step()

        g_loss = -D(G(torch.randn(args.batch, Z_DIM, generator=gen))).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()

        if step % args.log_every == 0:
            print(f"[{epoch}] {step:4d}/{args.steps}  D {d_loss.item():+.4f}  G {g_loss.item():+.4f}")

    dist = ring_distance(G, torch.Generator().manual_seed(5))
    print(f"epoch {epoch}: ring distance {dist:.4f}  ({time.time() - t0:.1f}s)")
