"""One worker that decodes for a step that would like more; samples also wait for a slow service."""

import time

from parts import ADVISED, FIXED, Jpegs, conv, threads, train
from torch.utils.data import DataLoader


class FromService(Jpegs):
    def __getitem__(self, index):
        time.sleep(0.004)
        return super().__getitem__(index)


threads()
train(conv(), DataLoader(FromService(), batch_size=16, num_workers=ADVISED if FIXED else 1, persistent_workers=True))
