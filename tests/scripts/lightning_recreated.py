"""Lightning with epochs of a few steps and workers that read their index anew each time."""

import hashlib

from lightning_parts import Classifier, fit
from parts import FIXED, Pixels
from torch.utils.data import DataLoader


def open_index(_):
    digest = b""
    for _ in range(300_000):
        digest = hashlib.sha256(digest).digest()


loader = DataLoader(
    Pixels(length=16 * 30), batch_size=16, num_workers=2, worker_init_fn=open_index, persistent_workers=FIXED
)
fit(Classifier(), loader)
