"""Tokenising text in __getitem__ in the main process, with a tiny model."""

import re

import torch
from parts import ADVISED, FIXED, mlp, threads, train
from torch.utils.data import DataLoader, Dataset

TEXT = "The quick brown fox jumps over the lazy dog and runs away, again and again; " * 12


class Texts(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        words = re.findall(r"\w+|[^\w\s]", TEXT.lower()[index % 40 :])
        counts = torch.zeros(64)
        for word in words:
            counts[sum(map(ord, word)) % 64] += 1
        return counts, index % 10


threads()
train(
    mlp(hidden=1024), DataLoader(Texts(), batch_size=32, num_workers=ADVISED if FIXED else 0, persistent_workers=FIXED)
)
