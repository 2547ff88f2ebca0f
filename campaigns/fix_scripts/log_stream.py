"""Anomaly score for web server log lines; the lines come as a stream (made up here, a socket in production)."""
import hashlib
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

PATHS = ["/", "/cart", "/login", "/api/items", "/api/items/17", "/static/app.js", "/search?q=lamp", "/admin"]
BUCKETS = 2048


def log_lines(n, seed):
    rng = random.Random(seed)
    for _ in range(n):
        bad = rng.random() < 0.2
        status = rng.choice([401, 403, 500]) if bad and rng.random() < 0.8 else 200
        path = rng.choice(PATHS[-2:] if bad else PATHS[:-1])
        agent = rng.choice(["curl/8", "python-requests", "Mozilla/5.0"]) if bad else "Mozilla/5.0"
        yield f"10.0.{rng.randrange(8)}.{rng.randrange(250)} GET {path} {status} {rng.randrange(20, 90000)} {agent}", int(bad)


def ngrams(line, low=3, high=5):
    counts = torch.zeros(BUCKETS)
    for size in range(low, high + 1):
        for i in range(len(line) - size + 1):
            digest = hashlib.md5(line[i:i + size].encode()).digest()
            counts[int.from_bytes(digest[:4], "little") % BUCKETS] += 1
    return counts


class LogStream(IterableDataset):
    def __init__(self, n, seed):
        self.n = n
        self.seed = seed

    def __iter__(self):
        for line, label in log_lines(self.n, self.seed):
            yield ngrams(line), torch.tensor(float(label))


def main():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(BUCKETS, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
        nn.Linear(1024, 1),
    )
    opt = torch.optim.Adam(model.parameters(), lr=3e-4)
    loss_fn = nn.BCEWithLogitsLoss()
    loader = DataLoader(LogStream(6400, seed=21), batch_size=32)
    for epoch in range(2):
        running = 0.0
        for step, (x, y) in enumerate(loader, 1):
            loss = loss_fn(model(x).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
            if step % 40 == 0:
                print(f"epoch {epoch} step {step} loss {running / step:.4f}")


if __name__ == "__main__":
    main()
