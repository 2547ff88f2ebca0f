"""Attention written out with plain tensor operations in the user's own file."""

import math

import torch
from parts import PACE, threads

threads()
width, length, heads = 128, 128, 4
weights = [torch.nn.Parameter(torch.randn(width, width) / math.sqrt(width)) for _ in range(6)]
optimizer = torch.optim.AdamW(weights)


def attend(x, q, k, v, o):
    b, t, c = x.shape
    query, key, value = [(x @ w).view(b, t, heads, c // heads).transpose(1, 2) for w in (q, k, v)]
    scores = query @ key.transpose(-2, -1) / math.sqrt(c // heads)
    scores = scores - scores.amax(dim=-1, keepdim=True)
    scores = scores.exp()
    mixed = (scores / scores.sum(dim=-1, keepdim=True)) @ value
    return mixed.transpose(1, 2).reshape(b, t, c) @ o


while not PACE.time_is_up():
    x = torch.randn(8, length, width)
    y = attend(x, *weights[:4])
    z = (y @ weights[4]).clamp(min=0) @ weights[5]
    loss = (z - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    PACE.step()
