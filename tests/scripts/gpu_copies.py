"""Every step copies a large batch from ordinary memory and waits for it."""

import torch
from gpu_parts import train

batch = torch.randn(400_000, 64)


def copied():
    x = batch.to("cuda")
    return x[:4096]


train(hidden=512, batch=4096, before_step=copied)
