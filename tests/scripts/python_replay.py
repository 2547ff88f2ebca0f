"""Reinforcement learning style: the environment is a Python loop between the updates."""

import random

import torch
from parts import PACE, mlp, threads
from torch import nn

threads()
model = mlp(inputs=8, hidden=256, outputs=2)
optimizer = torch.optim.Adam(model.parameters())
replay = []


def play(state):
    total = 0.0
    for _ in range(6000):
        state = [(value * 1.1 + random.random()) % 3.0 for value in state]
        total += sum(state)
    return state, total


state = [0.0] * 8
while not PACE.time_is_up():
    state, reward = play(state)
    replay = [*replay[-500:], (state, reward)]
    inputs = torch.tensor([s for s, _ in random.choices(replay, k=32)])
    loss = nn.functional.mse_loss(model(inputs)[:, 0], torch.zeros(32))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    PACE.step()
