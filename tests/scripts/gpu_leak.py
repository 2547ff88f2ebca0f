"""Keeps every step's loss with its graph on the GPU."""

import torch
from gpu_parts import train

kept = []


def keep(step, model, loss):
    kept.append(torch.empty(250_000, device="cuda"))
    if step % 20 == 0:
        loss.item()


train(hidden=2048, batch=2048, after_step=keep)
