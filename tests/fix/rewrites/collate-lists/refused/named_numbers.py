# hot `rewards = torch` 0.3; hot `actions = torch` 0.2 -> nothing
import random
from collections import namedtuple

import numpy as np
import torch

Step = namedtuple("Step", "state action reward next_state done")
frames = [np.random.rand(3, 16, 16) for _ in range(65)]
memory = [Step(frames[n], n % 4, float(n), frames[n + 1], n == 63) for n in range(64)]


def batch():
    batch = Step(*zip(*random.sample(memory, 32)))
    states = torch.tensor(batch.state, dtype=torch.float32)
    actions = torch.tensor(batch.action)
    rewards = torch.tensor(batch.reward)
    following = torch.tensor(batch.next_state, dtype=torch.float32)
    return states, actions, rewards, following


for _ in range(3):
    print([one.sum().item() for one in batch()])
