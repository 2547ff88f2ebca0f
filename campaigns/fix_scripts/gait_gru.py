"""Activity recognition from IMU windows of different length (GRU + padding)."""
from __future__ import annotations

import argparse
import random
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, Dataset

CONFIG: dict[str, Any] = {"channels": 9, "classes": 5, "min_len": 60, "max_len": 160, "hidden": 40, "lr": 3e-3}


class ImuWindows(Dataset):
    def __init__(self, n: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        mix = np.random.default_rng(0).normal(size=(CONFIG["classes"], 4, CONFIG["channels"]))
        self.items: list[tuple[np.ndarray, int]] = []
        for _ in range(n):
            label = int(rng.integers(CONFIG["classes"]))
            t = np.arange(rng.integers(CONFIG["min_len"], CONFIG["max_len"] + 1)) / 50.0
            f = 1.2 + 0.15 * label + 0.1 * rng.normal()
            ph = rng.uniform(0, 2 * np.pi)
            basis = np.stack([np.sin(2 * np.pi * k * f * t + k * ph) / k for k in range(1, 5)], axis=1)
            sig = basis @ (mix[label] + 0.5 * mix[(label + 1) % 5]) * 0.4 + rng.normal(size=(len(t), CONFIG["channels"]))
            self.items.append((sig.astype(np.float32), label))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> tuple[np.ndarray, int]:
        return self.items[i]


def pad_collate(batch: list[tuple[np.ndarray, int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    batch = sorted(batch, key=lambda item: -len(item[0]))
    lengths = [len(sig) for sig, _ in batch]
    padded = []
    for sig, _ in batch:
        rows = [[float(v) for v in row] for row in sig]
        rows += [[0.0] * CONFIG["channels"]] * (lengths[0] - len(rows))
        padded.append(rows)
    return torch.tensor(padded), torch.tensor(lengths), torch.tensor([label for _, label in batch])


class GaitNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(CONFIG["channels"])
        self.gru = nn.GRU(CONFIG["channels"], CONFIG["hidden"], batch_first=True)
        self.fc = nn.Linear(CONFIG["hidden"], CONFIG["classes"])

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        _, h = self.gru(pack_padded_sequence(self.norm(x), lengths, batch_first=True))
        return self.fc(h[-1])


def train_one_epoch(model, loader, optimizer, criterion, epoch, args) -> None:
    model.train()
    for step, (x, lengths, y) in enumerate(loader):
        if args.steps is not None and step >= args.steps:
            return
        loss = criterion(model(x, lengths), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % args.log_interval == 0:
            print(f"Train epoch {epoch} [{step}/{len(loader)}] loss {loss.item():.4f}")


def test(model, loader) -> float:
    model.eval()
    hits = total = 0
    with torch.no_grad():
        for x, lengths, y in loader:
            hits += (model(x, lengths).argmax(1) == y).sum().item()
            total += len(y)
    return hits / total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    random.seed(args.seed), torch.manual_seed(args.seed)
    train_loader = DataLoader(ImuWindows(4800, 1), args.batch_size, shuffle=True, collate_fn=pad_collate)
    test_loader = DataLoader(ImuWindows(640, 2), 128, collate_fn=pad_collate)
    model = GaitNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=CONFIG["lr"])
    for epoch in range(1, args.epochs + 1):
        train_one_epoch(model, train_loader, optimizer, nn.CrossEntropyLoss(), epoch, args)
        print(f"Test epoch {epoch} accuracy {test(model, test_loader):.4f}")


if __name__ == "__main__":
    main()
