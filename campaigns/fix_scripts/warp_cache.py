"""Speaker counting from spectrogram patches. Each patch is warped at random once and then kept, so that later epochs
are cheap; a fifth of the kept ones is drawn again."""
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class PatchSet(Dataset):
    def __init__(self, n, seed, size=64):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, 4, size=n)
        base = rng.normal(size=(n, size, size)).astype(np.float32)
        for i, label in enumerate(self.labels):
            for k in range(label + 1):
                base[i, (7 + 13 * k) % size] += 3
        self.base = base
        self.kept = {}

    def __len__(self):
        return len(self.labels)

    def warp(self, patch):
        out = np.empty_like(patch)
        columns = np.arange(patch.shape[1], dtype=np.float32)
        for row in range(patch.shape[0]):
            bend = np.cumsum(np.random.normal(0, 0.2, patch.shape[1]))
            out[row] = np.interp(columns + bend, columns, patch[row])
        return out

    def __getitem__(self, i):
        if i not in self.kept or random.random() < 0.2:
            self.kept[i] = self.warp(self.base[i])
        return torch.from_numpy(self.kept[i])[None], int(self.labels[i])


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.Dropout(0.2),
            nn.Flatten(), nn.Linear(16 * 13 * 13, 4),
        )

    def forward(self, x):
        return self.net(x)


def main():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    loader = DataLoader(PatchSet(1200, 3), batch_size=40, shuffle=True)
    model = Counter()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(5):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
