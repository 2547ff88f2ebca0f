# hot `rewards = torch` 0.3; hot `lengths = torch` 0.2 -> nothing
import random

import numpy as np
import torch

memory = [(np.random.rand(4), float(i), "a" * i) for i in range(64)]
for _ in range(3):
    rows, returns = [], []
    for _, reward, text in random.sample(memory, 32):
        rows.append(len(text))
        returns.append(float(reward))
    rewards = torch.tensor(returns)
    lengths = torch.tensor(rows)
    print(rewards.sum().item(), lengths.sum().item())
