# coding: utf-8
# Next item prediction for a web shop (sessions of clicks), GRU4Rec flavoured.
# Exported from my work notes; real click logs replaced by a random walk
# over a fixed item graph.
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class Params:
    n_items: int = 10000
    session_len: int = 24
    dim: int = 64
    hidden: int = 96
    batch: int = 64
    n_sessions: int = 5120
    epochs: int = 2
    lr: float = 2e-3
    seed: int = 31337


class Shop:
    """Every item has four 'people also looked at' neighbours."""

    def __init__(self, p: Params):
        self.p = p
        self.gen = torch.Generator().manual_seed(p.seed)
        self.neigh = torch.randint(0, 300, (p.n_items, 4), generator=self.gen)

    def sessions(self, n: int) -> Tensor:
        cur = torch.randint(0, self.p.n_items, (n,), generator=self.gen)
        walk = [cur]
        for _ in range(self.p.session_len):
            pick = torch.randint(0, 4, (n,), generator=self.gen)
            # first neighbour is the most popular one
            pick = torch.where(torch.rand(n, generator=self.gen) < 0.7, 0, pick)
            cur = self.neigh[cur, pick]
            walk.append(cur)
        return torch.stack(walk, dim=1)


class SessionModel(nn.Module):
    def __init__(self, p: Params):
        super().__init__()
        self.items = nn.Embedding(p.n_items, p.dim)
        self.gru = nn.GRU(p.dim, p.hidden, batch_first=True)
        self.norm = nn.LayerNorm(p.hidden)
        self.decoder = nn.Linear(p.hidden, p.n_items)

    def forward(self, clicks: Tensor) -> Tensor:
        h, _ = self.gru(self.items(clicks))
        scores = self.decoder(self.norm(h))
        return scores[:, -1]


def recall_at(scores: Tensor, target: Tensor, k: int = 20) -> float:
    top = scores.topk(k, dim=1).indices
    return (top == target[:, None]).any(1).float().mean().item()


def train(p: Params) -> None:
    torch.manual_seed(p.seed)
    data = Shop(p).sessions(p.n_sessions)
    held_out, data = data[:256], data[256:]
    model = SessionModel(p)
    opt = torch.optim.Adagrad(model.parameters(), lr=p.lr * 10)
    ce = nn.CrossEntropyLoss()
    n_steps = 0
    for epoch in range(1, p.epochs + 1):
        model.train()
        for idx in torch.randperm(len(data)).split(p.batch):
            rows = data[idx]
            clicks, target = rows[:, :-1], rows[:, -1]
            loss = ce(model(clicks), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            n_steps += 1
            if n_steps % 19 == 0:
                print(f"[{epoch}] step={n_steps} loss={loss.item():.4f}")
        model.eval()
        with torch.no_grad():
            hits = [
                recall_at(model(part[:, :-1]), part[:, -1]) for part in held_out.split(64)
            ]
        print(f"[{epoch}] recall@20={sum(hits) / len(hits):.4f}")


if __name__ == "__main__":
    train(Params())
