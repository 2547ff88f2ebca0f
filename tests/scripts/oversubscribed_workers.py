"""Each loader worker runs its tensor operations on eight threads."""

import torch
from parts import Pixels, conv, threads, train
from torch.utils.data import DataLoader


class Blurred(Pixels):
    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        kernel = torch.ones(3, 1, 9, 9) / 81
        large = torch.nn.functional.interpolate(image[None], size=(256, 256))
        for _ in range(3):
            large = torch.nn.functional.conv2d(large, kernel, padding=4, groups=3)
        return large[0, :, ::4, ::4].contiguous(), label


def more_threads(_):
    torch.set_num_threads(8)


threads()
train(conv(), DataLoader(Blurred(), batch_size=16, num_workers=2, worker_init_fn=more_threads, persistent_workers=True))
