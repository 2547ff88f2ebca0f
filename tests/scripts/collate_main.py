"""Padding in a Python loop in collate_fn, without workers."""

import torch
from parts import ADVISED, FIXED, mlp, threads, train
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return list(range(20 + index % 40)), index % 10


def pad(samples):
    longest = 64
    rows = []
    for tokens, _ in samples:
        row = [0.0] * longest
        for place, token in enumerate(tokens):
            row[place] = (token * 2654435761 % 1000) / 1000
        rows.append(row)
    return torch.tensor(rows), torch.tensor([label for _, label in samples])


threads()
workers = ADVISED if FIXED else 0
train(
    mlp(hidden=128),
    DataLoader(Sentences(), batch_size=64, num_workers=workers, collate_fn=pad, persistent_workers=FIXED),
)
