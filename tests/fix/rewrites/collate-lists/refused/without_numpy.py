# hot `states = torch` 0.3 -> nothing
import random

import torch

from somewhere import memory

for _ in range(3):
    states, rewards = zip(*random.sample(memory, 32))
    states = torch.FloatTensor(states)
    print(states.sum().item(), sum(rewards))
