"""
A character level GPT trained on generated arithmetic ("37+48=85;").

    python char_gpt.py --steps 30 --epochs 3
"""
import argparse
import random

import torch
import torch.nn as nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps", type=int, default=30, help="optimizer steps per epoch")
parser.add_argument("--batch_size", type=int, default=24)
parser.add_argument("--block_size", type=int, default=128)
parser.add_argument("--n_layer", type=int, default=3)
parser.add_argument("--n_head", type=int, default=4)
parser.add_argument("--n_embd", type=int, default=128)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--seed", type=int, default=1337)


def make_corpus(n_lines, seed):
    rnd = random.Random(seed)
    lines = []
    for _ in range(n_lines):
        a, b = rnd.randint(0, 99), rnd.randint(0, 99)
        op = rnd.choice("+-")
        lines.append(f"{a}{op}{b}={a + b if op == '+' else a - b};")
    return "".join(lines)


class Block(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.ln1 = nn.LayerNorm(n_embd)
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.proj = nn.Linear(n_embd, n_embd, bias=False)
        self.ln2 = nn.LayerNorm(n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.ln1(x)).split(C, dim=2)
        q, k, v = (m.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for m in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab, args):
        super().__init__()
        self.tok = nn.Embedding(vocab, args.n_embd)
        self.pos = nn.Embedding(args.block_size, args.n_embd)
        self.blocks = nn.Sequential(*[Block(args.n_embd, args.n_head) for _ in range(args.n_layer)])
        self.ln_f = nn.LayerNorm(args.n_embd)
        self.head = nn.Linear(args.n_embd, vocab, bias=False)
        self.register_buffer("steps", torch.arange(args.block_size), persistent=False)

    def forward(self, idx, targets):
        x = self.tok(idx) + self.pos(self.steps[:idx.size(1)])
        logits = self.head(self.ln_f(self.blocks(x)))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Batches:
    def __init__(self, data, args, device, seed):
        self.data, self.args, self.device = data, args, device
        self.gen = torch.Generator().manual_seed(seed)
        self.window = torch.arange(args.block_size + 1)

    def __call__(self):
        n = len(self.data) - self.args.block_size - 1
        start = torch.randint(n, (self.args.batch_size, 1), generator=self.gen)
        chunk = self.data[start + self.window].to(self.device)
        return chunk[:, :-1], chunk[:, 1:]


@torch.inference_mode()
def validate(model, batches, n):
    model.eval()
    total = torch.zeros((), device=batches.device)
    for _ in range(n):
        total += model(*batches())
    model.train()
    return (total / n).item()


def main():
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    text = make_corpus(20000, args.seed)
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    data = torch.tensor([stoi[c] for c in text], dtype=torch.long)
    cut = int(0.95 * len(data))
    train_batches = Batches(data[:cut], args, device, seed=1)

    model = GPT(len(chars), args).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95))
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters, vocab {len(chars)}")

    for epoch in range(args.epochs):
        running = torch.zeros((), device=device)
        for _ in range(args.steps):
            loss = model(*train_batches())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            running += loss.detach()
        val = validate(model, Batches(data[cut:], args, device, seed=2), 3)
        print(f"epoch {epoch} train {running.item() / args.steps:.6f} val {val:.6f}", flush=True)


if __name__ == "__main__":
    main()
