"""Denoising diffusion on 16x16 synthetic shapes, with an exponential average of the weights."""
import copy
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass(frozen=True)
class Cfg:
    size: int = 16
    images: int = 4000
    timesteps: int = 200
    width: int = 32
    batch: int = 64
    steps: int = 240
    lr: float = 1e-3
    ema: float = 0.995
    seed: int = 17
    report: int = 40


def shapes(cfg, gen):
    grid = torch.arange(cfg.size, dtype=torch.float32)
    cx, cy = 4 + 8 * torch.rand(2, cfg.images, 1, 1, generator=gen)
    r = 2 + 3 * torch.rand(cfg.images, 1, 1, generator=gen)
    dx, dy = (grid[None, None, :] - cx).abs(), (grid[None, :, None] - cy).abs()
    disc = torch.sigmoid(2 * (r - (dx**2 + dy**2).sqrt()))
    square = torch.sigmoid(2 * (r - torch.maximum(dx, dy)))
    pick = torch.rand(cfg.images, 1, 1, generator=gen) < 0.5
    return (2 * torch.where(pick, disc, square) - 1).unsqueeze(1)


class Block(nn.Module):
    def __init__(self, cin, cout, emb):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.emb = nn.Linear(emb, cout)
        self.norm1 = nn.GroupNorm(8, cout)
        self.norm2 = nn.GroupNorm(8, cout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, e):
        h = F.silu(self.norm1(self.conv1(x))) + self.emb(e)[:, :, None, None]
        return F.silu(self.norm2(self.conv2(h))) + self.skip(x)


class Denoiser(nn.Module):
    def __init__(self, width, emb=64):
        super().__init__()
        freqs = torch.exp(-math.log(1e4) * torch.arange(emb // 2) / (emb // 2))
        self.register_buffer("freqs", freqs)
        self.embed = nn.Sequential(nn.Linear(emb, emb), nn.SiLU())
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.down = Block(width, width, emb)
        self.mid = Block(width, 2 * width, emb)
        self.up = Block(3 * width, width, emb)
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x, t):
        angle = t[:, None].float() * self.freqs
        e = self.embed(torch.cat([angle.sin(), angle.cos()], 1))
        a = self.down(self.stem(x), e)
        b = self.mid(F.avg_pool2d(a, 2), e)
        b = F.interpolate(b, scale_factor=2.0, mode="nearest")
        return self.out(self.up(torch.cat([a, b], 1), e))


class Schedule:
    def __init__(self, steps):
        betas = torch.linspace(1e-4, 0.05, steps)
        keep = torch.cumprod(1 - betas, 0)
        self.signal = keep.sqrt().view(-1, 1, 1, 1)
        self.sigma = (1 - keep).sqrt().view(-1, 1, 1, 1)

    def noised(self, x, noise, t):
        return self.signal[t] * x + self.sigma[t] * noise


@torch.no_grad()
def update_average(average, model, decay):
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)


def main(cfg=Cfg()):
    torch.manual_seed(cfg.seed)
    gen = torch.Generator().manual_seed(cfg.seed)
    images = shapes(cfg, gen)
    schedule = Schedule(cfg.timesteps)
    model = Denoiser(cfg.width)
    average = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    running = torch.zeros(())
    for step in range(1, cfg.steps + 1):
        x = images[torch.randint(0, cfg.images, (cfg.batch,), generator=gen)]
        t = torch.randint(0, cfg.timesteps, (cfg.batch,), generator=gen)
        noise = torch.randn(x.shape, generator=gen)
        loss = F.mse_loss(model(schedule.noised(x, noise, t), t), noise)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        update_average(average, model, cfg.ema)
        running += loss.detach()
        if step % cfg.report == 0:
            with torch.no_grad():
                smooth = F.mse_loss(average(schedule.noised(x, noise, t), t), noise)
            print(f"{step:5d} mse {running.item() / cfg.report:.6f} averaged {smooth.item():.6f}")
            running.zero_()


if __name__ == "__main__":
    main()
