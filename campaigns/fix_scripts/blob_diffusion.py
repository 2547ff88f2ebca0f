"""tiny denoising diffusion transformer on 32x32 blob pictures, epsilon prediction"""
import math

import torch
import torch.nn.functional as F
from torch import nn


def exists(v):
    return v is not None


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        qkv = self.to_qkv(x).view(b, n, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.to_out(out.transpose(1, 2).reshape(b, n, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attn_norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.ff_norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.attn = Attention(dim, heads)
        self.ff = nn.Sequential(nn.Linear(dim, dim * 4), nn.ReLU(), nn.Linear(dim * 4, dim))
        self.to_mod = nn.Linear(dim, dim * 4)

    def forward(self, x, cond):
        s1, g1, s2, g2 = self.to_mod(cond).chunk(4, dim=-1)
        x = x + self.attn(modulate(self.attn_norm(x), s1, g1))
        return x + self.ff(modulate(self.ff_norm(x), s2, g2))


class DiT(nn.Module):
    def __init__(self, dim=192, depth=3, heads=4, patch=4, size=32):
        super().__init__()
        self.patch, self.grid = patch, size // patch
        self.embed = nn.Linear(patch * patch, dim)
        self.pos = nn.Parameter(torch.randn(self.grid ** 2, dim) * 0.02)
        self.time = nn.Sequential(nn.Linear(64, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.out = nn.Linear(dim, patch * patch)
        nn.init.zeros_(self.out.weight)
        freqs = torch.exp(-math.log(10000.0) * torch.arange(32) / 32)
        self.register_buffer("freqs", freqs)

    def forward(self, x, t):
        b, p, g = x.size(0), self.patch, self.grid
        tokens = x.view(b, g, p, g, p).transpose(2, 3).reshape(b, g * g, p * p)
        angle = t[:, None].float() * self.freqs
        cond = self.time(torch.cat([angle.sin(), angle.cos()], dim=1))
        h = self.embed(tokens) + self.pos
        for block in self.blocks:
            h = block(h, cond)
        return self.out(h).view(b, g, g, p, p).transpose(2, 3).reshape(b, g * p, g * p)


class Diffusion:
    def __init__(self, timesteps=400):
        s = torch.linspace(0, 1, timesteps + 1)
        bar = torch.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2
        bar = (bar / bar[0])[1:].clamp(min=1e-4)
        self.timesteps = timesteps
        self.signal, self.noise = bar.sqrt(), (1 - bar).sqrt()

    def loss(self, model, x0, t=None):
        if not exists(t):
            t = torch.randint(0, self.timesteps, (x0.size(0),))
        eps = torch.randn_like(x0)
        xt = self.signal[t].view(-1, 1, 1) * x0 + self.noise[t].view(-1, 1, 1) * eps
        return F.mse_loss(model(xt, t), eps)


@torch.no_grad()
def ema_update(ema, params, decay=0.995):
    torch._foreach_lerp_(ema, params, 1 - decay)


def blobs(n, size=32):
    grid = torch.arange(size).float()
    cx, cy = torch.rand(2, n, 1, 1) * size
    r = 3 + 5 * torch.rand(n, 1, 1)
    d2 = (grid.view(1, 1, -1) - cx) ** 2 + (grid.view(1, -1, 1) - cy) ** 2
    return torch.exp(-d2 / (2 * r ** 2)) * 2 - 1


if __name__ == "__main__":
    torch.manual_seed(8)
    data = blobs(2048)
    model = DiT()
    diffusion = Diffusion()
    params = list(model.parameters())
    ema = [p.detach().clone() for p in params]
    opt = torch.optim.AdamW(params, lr=4e-4, betas=(0.9, 0.99), weight_decay=0.0, fused=True)

    for step in range(160):
        batch = data[torch.randint(0, len(data), (24,))]
        loss = diffusion.loss(model, batch)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        ema_update(ema, params)
        if step % 10 == 0:
            print(f"{step}: {loss.item():.6f}")
    drift = sum((e - p).pow(2).sum() for e, p in zip(ema, params)).sqrt().item()
    print(f"distance of the average to the weights: {drift:.5f}")
