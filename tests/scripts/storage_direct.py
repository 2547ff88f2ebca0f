"""Uncached reads from one large file that is never in the page cache, as from a spinning or remote disk."""

import mmap
import os
import random
import tempfile

import torch
from parts import conv, threads, train
from torch.utils.data import DataLoader, Dataset

BLOCK, BLOCKS = 1 << 20, 256


class OnDisk(Dataset):
    def __init__(self, place):
        self.place = place
        self.file = None

    def __len__(self):
        return 4096

    def __getitem__(self, index):
        if self.file is None:
            self.file = os.open(self.place, os.O_RDONLY | os.O_DIRECT)
            self.buffer = mmap.mmap(-1, BLOCK)
        for _ in range(12):
            os.preadv(self.file, [self.buffer], random.randrange(BLOCKS) * BLOCK)
        return torch.full((3, 64, 64), self.buffer[0] / 255), index % 10


threads()
with tempfile.NamedTemporaryFile(dir=os.environ.get("STORAGE_DIR")) as file:
    for _ in range(BLOCKS):
        file.write(os.urandom(BLOCK))
    file.flush()
    os.fsync(file.fileno())
    train(conv(8), DataLoader(OnDisk(file.name), batch_size=32, num_workers=2, persistent_workers=True))
