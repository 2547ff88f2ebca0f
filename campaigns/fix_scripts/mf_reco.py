"""
Implicit feedback recommender: biased matrix factorisation with BPR loss.

The interaction log is synthetic: users and items both live in a latent space and
popular items are drawn more often (Zipf).
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = dict(
    n_users=220_000,
    n_items=130_000,
    n_interactions=60_000,
    dim=32,
    batch_size=512,
    epochs=5,
    lr=5.0,
    seed=42,
)


def synth_log(n_users, n_items, n, seed):
    """Returns (user, item) pairs. Item ids follow a truncated Zipf, shifted per user group."""
    rng = np.random.default_rng(seed)
    users = rng.integers(0, n_users, size=n)
    rank = np.minimum(rng.zipf(1.25, size=n) - 1, n_items - 1)
    group = users % 8
    items = (rank + group * (n_items // 8)) % n_items
    return torch.from_numpy(users), torch.from_numpy(items)


class BiasedMF(nn.Module):
    def __init__(self, n_users, n_items, dim):
        super().__init__()
        self.user_emb = nn.Embedding(n_users, dim)
        self.item_emb = nn.Embedding(n_items, dim)
        self.item_bias = nn.Embedding(n_items, 1)
        nn.init.normal_(self.user_emb.weight, std=0.1)
        nn.init.normal_(self.item_emb.weight, std=0.1)
        nn.init.zeros_(self.item_bias.weight)

    def forward(self, u, i):
        dot = (self.user_emb(u) * self.item_emb(i)).sum(dim=-1)
        return dot + self.item_bias(i).squeeze(-1)


class NegativeSampler:
    """Uniform negatives with its own generator, so that evaluation does not disturb it."""

    def __init__(self, n_items, seed):
        self.n_items = n_items
        self.gen = torch.Generator().manual_seed(seed)

    def __call__(self, n):
        return torch.randint(self.n_items, (n,), generator=self.gen)


def bpr_loss(pos, neg):
    return -F.logsigmoid(pos - neg).mean()


@torch.no_grad()
def auc(model, users, items, sampler, device):
    neg = sampler(len(items)).to(device)
    return (model(users, items) > model(users, neg)).float().mean().item()


def train_epoch(model, optimizer, users, items, sampler, batch_size, device):
    model.train()
    perm = torch.randperm(len(users))
    running, n_batches = 0.0, 0
    for start in range(0, len(perm), batch_size):
        idx = perm[start:start + batch_size]
        u, i = users[idx].to(device), items[idx].to(device)
        j = sampler(len(idx)).to(device)

        loss = bpr_loss(model(u, i), model(u, j))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        running += loss.item()
        n_batches += 1
    return running / n_batches


def main(cfg):
    torch.manual_seed(cfg["seed"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    users, items = synth_log(cfg["n_users"], cfg["n_items"], cfg["n_interactions"], cfg["seed"])
    n_val = len(users) // 10
    val_u, val_i = users[:n_val].to(device), items[:n_val].to(device)
    users, items = users[n_val:], items[n_val:]

    model = BiasedMF(cfg["n_users"], cfg["n_items"], cfg["dim"]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg["lr"])
    sampler = NegativeSampler(cfg["n_items"], cfg["seed"] + 1)
    val_sampler = NegativeSampler(cfg["n_items"], cfg["seed"] + 2)

    for epoch in range(cfg["epochs"]):
        loss = train_epoch(model, optimizer, users, items, sampler, cfg["batch_size"], device)
        score = auc(model, val_u, val_i, val_sampler, device)
        print(f"epoch {epoch + 1} bpr_loss={loss:.6f} val_auc={score:.4f}", flush=True)


if __name__ == "__main__":
    main(CONFIG)
