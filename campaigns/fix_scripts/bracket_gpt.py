import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

# Next-token model on Dyck-2 strings: ( ) [ ] and a separator. Metric is accuracy on closing brackets.
OPEN, CLOSE, SEP = (0, 1), (2, 3), 4


@dataclass
class GPTConfig:
    vocab_size: int = 5
    block_size: int = 128
    n_layer: int = 3
    n_head: int = 4
    n_embd: int = 128


def dyck_stream(length, seed):
    g = torch.Generator().manual_seed(seed)
    coins, kinds = torch.rand(length, generator=g), torch.randint(0, 2, (length,), generator=g)
    out, stack = [], []
    for c, k in zip(coins.tolist(), kinds.tolist()):
        if stack and (c < 0.5 or len(stack) > 8):
            out.append(CLOSE[stack.pop()])
        elif not stack and c < 0.2:
            out.append(SEP)
        else:
            stack.append(k)
            out.append(OPEN[k])
    return torch.tensor(out)


class CausalSelfAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_head = cfg.n_head
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in self.c_attn(x).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(cfg.n_embd), nn.LayerNorm(cfg.n_embd)
        self.attn = CausalSelfAttention(cfg)
        self.mlp = nn.Sequential(nn.Linear(cfg.n_embd, 4 * cfg.n_embd), nn.GELU(), nn.Linear(4 * cfg.n_embd, cfg.n_embd))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(cfg.vocab_size, cfg.n_embd), nn.Embedding(cfg.block_size, cfg.n_embd)
        self.register_buffer("pos", torch.arange(cfg.block_size), persistent=False)
        self.h = nn.Sequential(*[Layer(cfg) for _ in range(cfg.n_layer)])
        self.ln_f, self.lm_head = nn.LayerNorm(cfg.n_embd), nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)

    def forward(self, idx):
        x = self.h(self.wte(idx) + self.wpe(self.pos[: idx.size(1)]))
        return self.lm_head(self.ln_f(x))


class StreamLoader:
    """Random windows out of one long token tensor."""

    def __init__(self, tokens, block, batch, steps, seed):
        self.tokens, self.offsets = tokens, torch.arange(block + 1)
        self.batch, self.steps = batch, steps
        self.gen = torch.Generator().manual_seed(seed)

    def __iter__(self):
        for _ in range(self.steps):
            start = torch.randint(0, len(self.tokens) - len(self.offsets), (self.batch, 1), generator=self.gen)
            window = self.tokens[start + self.offsets]
            yield window[:, :-1], window[:, 1:]


@torch.no_grad()
def closing_accuracy(model, batches):
    model.eval()
    hit = n = 0
    for x, y in batches:
        closing = (y == CLOSE[0]) | (y == CLOSE[1])
        hit, n = hit + ((model(x).argmax(-1) == y) & closing).sum().item(), n + closing.sum().item()
    return hit / n


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--steps", type=int, default=90)
    ap.add_argument("--batch", type=int, default=24)
    opt = ap.parse_args()
    torch.manual_seed(31)
    model = GPT(cfg := GPTConfig())
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    loader = StreamLoader(dyck_stream(200_000, 1), cfg.block_size, opt.batch, opt.steps, seed=3)
    held_out = list(StreamLoader(dyck_stream(20_000, 2), cfg.block_size, 32, 4, seed=4))
    for epoch in range(opt.epochs):
        model.train()
        for it, (x, y) in enumerate(loader, 1):
            loss = F.cross_entropy(model(x).view(-1, cfg.vocab_size), y.reshape(-1))
            optim.zero_grad(set_to_none=True)
            loss.backward()
            optim.step()
            if it % 15 == 0:
                print(f"iter {epoch * opt.steps + it}: loss {loss.item():.4f}")
        print(f"epoch {epoch}: closing-bracket accuracy {closing_accuracy(model, held_out):.4f}")
