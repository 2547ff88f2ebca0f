# hot `states = torch` 0.3; hot `after = torch` 0.2
import random

import numpy as np
import torch

memory = [(np.random.rand(4, 20, 20).astype("float32"), 1.0, np.random.rand(4, 20, 20)) for _ in range(64)]


def batch():
    states, rewards, following = zip(*random.sample(memory, 32))
    states = torch.FloatTensor(states)
    rewards = torch.tensor(rewards)
    frames, hours = [], []
    for frame in following:
        frames.append(frame)
    after = torch.tensor(
        frames,
        dtype=torch.float32,
    )
    return states, rewards, after


for _ in range(3):
    print([one.sum().item() for one in batch()])
