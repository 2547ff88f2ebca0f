"""Worker 1 got the shard with the huge samples."""

import time

from parts import Pixels, conv, threads, train
from torch.utils.data import DataLoader, get_worker_info


class Shards(Pixels):
    def __getitem__(self, index):
        if get_worker_info().id == 1:
            until = time.thread_time() + 0.006
            while time.thread_time() < until:
                pass
        return super().__getitem__(index)


threads()
train(conv(), DataLoader(Shards(), batch_size=16, num_workers=4, persistent_workers=True))
