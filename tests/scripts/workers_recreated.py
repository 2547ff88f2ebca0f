"""Short epochs, and workers that open their index anew at the start of each."""

import hashlib

from parts import FIXED, Pixels, conv, threads, train
from torch.utils.data import DataLoader


def open_index(_):
    digest = b""
    for _ in range(300_000):
        digest = hashlib.sha256(digest).digest()


threads()
loader = DataLoader(
    Pixels(length=16 * 30), batch_size=16, num_workers=2, worker_init_fn=open_index, persistent_workers=FIXED
)
train(conv(), loader)
