"""Character GPT with sliding-window ALiBi attention, on generated arithmetic lines."""
import argparse
import math
import random

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CHARS = "0123456789+-*=;\n"
STOI = {c: i for i, c in enumerate(CHARS)}


def make_corpus(n_chars: int, seed: int) -> Tensor:
    rng, out = random.Random(seed), []
    for _ in range(n_chars // 6):
        a, b, op = rng.randint(0, 9), rng.randint(0, 9), rng.choice("+-*")
        out.append(f"{a}{op}{b}={a + b if op == '+' else a - b if op == '-' else a * b};\n")
    return torch.tensor([STOI[c] for c in "".join(out)[:n_chars]])


class WindowedAttention(nn.Module):
    def __init__(self, dim: int, n_head: int, window: int) -> None:
        super().__init__()
        self.n_head, self.window = n_head, window
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)

    def attention_bias(self, t: int) -> Tensor:
        bias = torch.full((self.n_head, t, t), float("-inf"))
        for h in range(self.n_head):
            slope = 2.0 ** (-8.0 * (h + 1) / self.n_head)
            for i in range(t):
                lo = max(0, i - self.window + 1)
                bias[h, i, lo:i + 1] = -slope * torch.arange(i - lo, -1, -1)
        return bias

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.n_head, d // self.n_head).permute(2, 0, 3, 1, 4)
        bias = self.attention_bias(t)
        att = (q @ k.transpose(-2, -1)) / math.sqrt(d // self.n_head) + bias
        return self.proj((att.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim: int, n_head: int, window: int) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = WindowedAttention(dim, n_head, window)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class CharGPT(nn.Module):
    def __init__(self, vocab: int, dim: int = 96, depth: int = 3, n_head: int = 6, window: int = 32) -> None:
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.blocks = nn.Sequential(*[Block(dim, n_head, window) for _ in range(depth)])
        self.ln, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab)

    def forward(self, idx: Tensor) -> Tensor:
        return self.head(self.ln(self.blocks(self.emb(idx))))

    @torch.no_grad()
    def complete(self, prompt: str, n: int) -> str:
        idx = torch.tensor([[STOI[c] for c in prompt]])
        for _ in range(n):
            idx = torch.cat([idx, self(idx)[:, -1:].argmax(-1)], dim=1)
        return "".join(CHARS[i] for i in idx[0].tolist())


def get_batch(data: Tensor, block: int, batch: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
    start = torch.randint(0, len(data) - block - 1, (batch,), generator=g)
    win = data[start[:, None] + torch.arange(block + 1)]
    return win[:, :-1], win[:, 1:]


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--batch", type=int, default=10)
    p.add_argument("--block", type=int, default=128)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--log-every", type=int, default=20)
    a = p.parse_args()

    torch.manual_seed(1337)
    data, held = make_corpus(60_000, seed=1), make_corpus(6_000, seed=2)
    model = CharGPT(len(CHARS))
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr)
    g = torch.Generator().manual_seed(8)
    for epoch in range(a.epochs):
        model.train()
        for step in range(1, a.steps + 1):
            x, y = get_batch(data, a.block, a.batch, g)
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            if step % a.log_every == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        model.eval()
        with torch.no_grad():
            x, y = get_batch(held, a.block, 32, torch.Generator().manual_seed(0))
            nll = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        print(f"epoch {epoch} val_ppl {nll.exp().item():.4f} sample {model.complete('3+4=', 8)!r}")


if __name__ == "__main__":
    main()
