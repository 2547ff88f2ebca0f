"""Small encoder that sorts digits, with the usual sine positions."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class Sorter(nn.Module):
    def __init__(self, vocab=64, dim=48, length=256):
        super().__init__()
        self.dim = dim
        self.length = length
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.Conv1d(dim, 2 * dim, 9, padding=4)
        self.out = nn.Linear(2 * dim, vocab)

    def forward(self, tokens):
        table = torch.tensor([
            [math.sin(pos / 10000 ** (2 * (i // 2) / self.dim) + (i % 2) * math.pi / 2) for i in range(self.dim)]
            for pos in range(self.length)
        ])
        x = self.embed(tokens) + table
        x = F.relu(self.mix(x.transpose(1, 2)).transpose(1, 2))
        return self.out(x)


def batch(n, length, vocab, g):
    tokens = torch.randint(0, vocab, (n, length), generator=g)
    return tokens, tokens.sort(dim=1).values


def main(steps=300, length=256, vocab=64):
    torch.manual_seed(2)
    g = torch.Generator().manual_seed(9)
    model = Sorter(vocab, length=length)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        tokens, target = batch(8, length, vocab, g)
        loss = F.cross_entropy(model(tokens).flatten(0, 1), target.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
