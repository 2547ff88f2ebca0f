"""Two workers that mostly wait for an annotation service: more of them would cost no CPU."""

import time

from parts import ADVISED, FIXED, Pixels, conv, threads, train
from torch.utils.data import DataLoader


class Annotated(Pixels):
    def __getitem__(self, index):
        time.sleep(0.006)
        return super().__getitem__(index)


threads()
train(conv(), DataLoader(Annotated(), batch_size=16, num_workers=ADVISED if FIXED else 2, persistent_workers=True))
