"""
Keyword spotting on log-mel patches (toy version of chapter 4 experiments).

The real corpus is on the cluster; here we synthesise shards with the same
layout (x: [N, 1, 64, 64] float32, y: [N]) so that the script can be run
anywhere.
"""
import os
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SEED = 1234
N_SHARDS = 40
PER_SHARD = 24
N_CLASSES = 8
BATCH = 32
EPOCHS = 3


def make_corpus(root):
    rng = np.random.default_rng(SEED)
    t = np.linspace(0, 1, 64, dtype=np.float32)
    for s in range(N_SHARDS):
        y = rng.integers(0, N_CLASSES, size=PER_SHARD)
        x = rng.normal(0, 0.6, size=(PER_SHARD, 1, 64, 64)).astype(np.float32)
        for i, c in enumerate(y):
            ridge = np.sin(2 * np.pi * (c + 1) * t + rng.uniform(0, 6.28))
            rows = ((ridge * 0.4 + 0.5) * 63).astype(int)
            x[i, 0, rows, np.arange(64)] += 2.5
        np.savez_compressed(os.path.join(root, f"shard_{s:03d}.npz"), x=x, y=y)


class ShardDataset(Dataset):
    """Map-style view over all shards in a folder."""

    def __init__(self, root):
        self.paths = sorted(
            os.path.join(root, f) for f in os.listdir(root) if f.endswith(".npz")
        )
        self.index = []
        for p in self.paths:
            n = len(np.load(p)["y"])
            self.index += [(p, i) for i in range(n)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, k):
        path, i = self.index[k]
        shard = np.load(path)
        x = torch.from_numpy(shard["x"][i])
        y = int(shard["y"][i])
        return (x - x.mean()) / (x.std() + 1e-5), y


class KwsNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 5, stride=2, padding=2),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.Conv2d(2 * width, 4 * width, 3, padding=1),
            nn.BatchNorm2d(4 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.fc = nn.Linear(4 * width, N_CLASSES)

    def forward(self, x):
        return self.fc(self.body(x))


def main():
    torch.manual_seed(SEED)
    root = tempfile.mkdtemp(prefix="kws_")
    try:
        make_corpus(root)
        ds = ShardDataset(root)
        loader = DataLoader(ds, batch_size=BATCH, shuffle=True, drop_last=True)
        net = KwsNet()
        opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS * len(loader))
        crit = nn.CrossEntropyLoss()
        step = 0
        for epoch in range(EPOCHS):
            t0 = time.time()
            net.train()
            running, correct, seen = 0.0, 0, 0
            for x, y in loader:
                opt.zero_grad()
                logits = net(x)
                loss = crit(logits, y)
                loss.backward()
                opt.step()
                sched.step()
                running += loss.item() * len(y)
                correct += (logits.argmax(1) == y).sum().item()
                seen += len(y)
                step += 1
                if step % 12 == 0:
                    print(f"step {step:4d} loss {loss.item():.5f}")
            print(f"epoch {epoch} loss {running / seen:.5f} acc {correct / seen:.3f}")
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
