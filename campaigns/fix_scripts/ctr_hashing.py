"""Click-through-rate model with the hashing trick.

Categorical features are hashed into one big table (as in "Feature Hashing for
Large Scale Multitask Learning"), summed with learned field weights and fed
to a small MLP.  The click log is simulated.
"""
import logging
import zlib

import numpy as np
import torch
import torch.nn as nn

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("ctr")

TABLE_SIZE = 2_000_000
EMB_DIM = 16
FIELDS = ["site", "app", "device", "banner", "hour", "city"]
CARD = [5000, 3000, 800, 40, 24, 1200]
BATCH_SIZE = 512
STEPS = 350


def hash_offset(field: str) -> int:
    return zlib.crc32(field.encode()) % TABLE_SIZE


class ClickLog:
    def __init__(self, rows: int, seed: int):
        rng = np.random.default_rng(seed)
        # popular values come first (Zipf like)
        cols = [
            (c * rng.power(0.35, rows)).astype(np.int64).clip(0, c - 1) for c in CARD
        ]
        raw = np.stack(cols, axis=1)
        effect = [rng.normal(0, 0.9, c) for c in CARD]
        score = sum(e[raw[:, j]] for j, e in enumerate(effect)) - 1.0
        self.y = (rng.random(rows) < 1 / (1 + np.exp(-score))).astype(np.float32)
        offs = np.array([hash_offset(f) for f in FIELDS])
        self.x = (raw * 2654435761 + offs) % TABLE_SIZE

    def tensors(self):
        return torch.from_numpy(self.x), torch.from_numpy(self.y)


class HashedCTR(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(TABLE_SIZE, EMB_DIM)
        nn.init.uniform_(self.table.weight, -0.05, 0.05)
        self.field_weight = nn.Parameter(torch.ones(len(FIELDS), 1))
        self.mlp = nn.Sequential(
            nn.Linear(len(FIELDS) * EMB_DIM, 256),
            nn.ReLU(),
            nn.Linear(256, 256),
            nn.ReLU(),
            nn.Linear(256, 1),
        )

    def forward(self, x):
        e = self.table(x) * self.field_weight
        return self.mlp(e.flatten(1)).squeeze(1)


def auc(scores, labels):
    order = np.argsort(scores)
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    pos = labels == 1
    n1, n0 = pos.sum(), (~pos).sum()
    return (ranks[pos].sum() - n1 * (n1 + 1) / 2) / (n1 * n0)


def main():
    torch.manual_seed(11)
    x, y = ClickLog(BATCH_SIZE * STEPS + 8192, seed=11).tensors()
    x_test, y_test = x[-8192:], y[-8192:]
    model = HashedCTR()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    criterion = nn.BCEWithLogitsLoss()

    running = 0.0
    for step in range(STEPS):
        lo = step * BATCH_SIZE
        xb, yb = x[lo : lo + BATCH_SIZE], y[lo : lo + BATCH_SIZE]
        loss = criterion(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
        if (step + 1) % 25 == 0:
            log.info("step %4d  logloss %.5f", step + 1, running / 25)
            running = 0.0

    with torch.no_grad():
        p = model(x_test).numpy()
    log.info("test auc %.4f", auc(p, y_test.numpy()))


if __name__ == "__main__":
    main()
