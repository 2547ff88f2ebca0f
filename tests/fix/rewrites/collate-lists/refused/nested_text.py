# hot `xs = ` 0.5 -> refused: gives no table
import numpy as np
import torch
from torch.utils.data import DataLoader

WIDTH = 6


def collate(samples):
    xs = torch.tensor([[float(v) for v in x.split()] for x in samples])
    return xs


rng = np.random.default_rng(0)
data = [rng.normal(size=WIDTH * 20) for n in rng.integers(5, 30, size=64)]
total = torch.zeros(())
for x in DataLoader(data, batch_size=16, collate_fn=collate):
    total += x.pow(2).sum()
print(total.item(), x.shape, x.dtype)
