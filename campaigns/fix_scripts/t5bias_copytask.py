"""Tiny encoder with T5 relative position bias, trained to copy the token three places back.

I wanted to understand the bucket function from the T5 paper so I wrote it
out by hand instead of copying the HF code.
"""
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Config:
    vocab = 32
    seq_len = 128
    dim = 96
    heads = 4
    layers = 4
    buckets = 32
    max_distance = 100
    batch = 8
    steps = 150
    lr = 2e-3
    seed = 5


class RelativeBias(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.num_buckets = cfg.buckets
        self.max_distance = cfg.max_distance
        self.table = nn.Embedding(cfg.buckets, cfg.heads)

    def bucket(self, rel):
        half = self.num_buckets // 2
        b = half if rel > 0 else 0
        n = abs(rel)
        exact = half // 2
        if n < exact:
            return b + n
        large = exact + int(
            math.log(n / exact) / math.log(self.max_distance / exact) * (half - exact)
        )
        return b + min(large, half - 1)

    def forward(self, q_len, k_len):
        idx = torch.zeros(q_len, k_len, dtype=torch.long)
        for i in range(q_len):
            idx[i] = torch.tensor([self.bucket(j - i) for j in range(k_len)])
        return self.table(idx).permute(2, 0, 1)  # heads, q, k


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.h = cfg.heads
        self.qkv = nn.Linear(cfg.dim, 3 * cfg.dim, bias=False)
        self.proj = nn.Linear(cfg.dim, cfg.dim, bias=False)
        self.rel = RelativeBias(cfg)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        bias = self.rel(t, t).unsqueeze(0).expand(b, -1, -1, -1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n1 = nn.LayerNorm(cfg.dim)
        self.att = Attention(cfg)
        self.n2 = nn.LayerNorm(cfg.dim)
        self.ff = nn.Sequential(
            nn.Linear(cfg.dim, 4 * cfg.dim), nn.ReLU(), nn.Linear(4 * cfg.dim, cfg.dim)
        )

    def forward(self, x):
        x = x + self.att(self.n1(x))
        return x + self.ff(self.n2(x))


class Copier(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.dim)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm = nn.LayerNorm(cfg.dim)
        self.out = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, x):
        x = self.emb(x)
        for blk in self.blocks:
            x = blk(x)
        return self.out(self.norm(x))


def main(cfg=Config):
    torch.manual_seed(cfg.seed)
    model = Copier(cfg)
    optim = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    start = time.time()
    for step in range(cfg.steps):
        x = torch.randint(0, cfg.vocab, (cfg.batch, cfg.seq_len))
        target = x.roll(3, dims=1)
        logits = model(x)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optim.zero_grad(set_to_none=True)
        loss.backward()
        optim.step()
        if step % 10 == 0 or step == cfg.steps - 1:
            print(f"{step:3d}  loss={loss.item():.5f}")
    print(f"# {cfg.steps / (time.time() - start):.1f} it/s")


if __name__ == "__main__":
    main()
