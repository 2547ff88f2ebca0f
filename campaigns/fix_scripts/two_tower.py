"""Two-tower retrieval model for a small catalogue, sampled-softmax over the batch."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--users", type=int, default=1500)
parser.add_argument("--items", type=int, default=800)
parser.add_argument("--events", type=int, default=40000)
parser.add_argument("--batch", type=int, default=512)
parser.add_argument("--dim", type=int, default=48)
parser.add_argument("--epochs", type=int, default=26)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--seed", type=int, default=9)


def make_events(args):
    rng = np.random.default_rng(args.seed)
    taste = rng.standard_normal((args.users, 6))
    style = rng.standard_normal((args.items, 6))
    scores = taste @ style.T
    prob = np.exp(scores - scores.max(1, keepdims=True))
    cdf = np.cumsum(prob / prob.sum(1, keepdims=True), axis=1)
    user = rng.integers(0, args.users, args.events)
    ladder = (cdf + np.arange(args.users)[:, None]).ravel()
    item = np.searchsorted(ladder, user + rng.random(args.events)) - user * args.items
    item = item.clip(0, args.items - 1)
    side = style + 0.5 * rng.standard_normal(style.shape)
    return (
        torch.from_numpy(user),
        torch.from_numpy(item),
        torch.from_numpy(side.astype(np.float32)),
    )


class Tower(nn.Module):
    def __init__(self, count, dim, side=0):
        super().__init__()
        self.table = nn.Embedding(count, dim)
        nn.init.normal_(self.table.weight, std=0.1)
        self.mlp = nn.Sequential(nn.Linear(dim + side, 128), nn.ReLU(), nn.Linear(128, dim))

    def forward(self, ids, side=None):
        h = self.table(ids)
        if side is not None:
            h = torch.cat([h, side], 1)
        return F.normalize(self.mlp(h), dim=1)


class TwoTower(nn.Module):
    def __init__(self, args, side):
        super().__init__()
        self.user = Tower(args.users, args.dim)
        self.item = Tower(args.items, args.dim, side.size(1))
        self.register_buffer("side", side)
        self.log_scale = nn.Parameter(torch.tensor(2.0))

    def loss(self, user, item, log_freq):
        u = self.user(user)
        v = self.item(item, self.side[item])
        logits = self.log_scale.exp() * (u @ v.t()) - log_freq[item]
        same = item[:, None] == item[None, :]
        same.fill_diagonal_(False)
        return F.cross_entropy(logits.masked_fill(same, -1e9), torch.arange(len(item)))

    @torch.no_grad()
    def recall(self, user, item, k=20):
        u = self.user(user)
        v = self.item(torch.arange(len(self.side)), self.side)
        top = (u @ v.t()).topk(k, dim=1).indices
        return (top == item[:, None]).any(1).float().mean().item()


def main():
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    user, item, side = make_events(args)
    cut = int(0.95 * len(user))
    freq = torch.bincount(item[:cut], minlength=args.items).float() + 1
    log_freq = torch.log(freq / freq.sum())
    model = TwoTower(args, side)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    order = torch.Generator().manual_seed(args.seed)
    for epoch in range(args.epochs):
        total = torch.zeros(())
        rows = torch.randperm(cut, generator=order).split(args.batch)
        for r in rows:
            loss = model.loss(user[r], item[r], log_freq)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.detach()
        if epoch % 2 == 1:
            hit = model.recall(user[cut:], item[cut:])
            print(f"epoch {epoch:2d} loss {total.item() / len(rows):.6f} recall@20 {hit:.4f}")


if __name__ == "__main__":
    main()
