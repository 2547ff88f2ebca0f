# hot `rows = ` 0.5; hot `return torch.` 0.3
import numpy as np
import torch
from torch.utils.data import DataLoader

WIDTH = 6


def collate(samples):
    samples = sorted(samples, key=len, reverse=True)
    longest = len(samples[0])
    padded = []
    for sample in samples:
        rows = torch.as_tensor(sample, dtype=torch.float32)
        rows = torch.cat([rows, torch.zeros(longest - len(rows), WIDTH)])
        padded.append(rows)
    return torch.stack(padded)


rng = np.random.default_rng(0)
data = [rng.normal(size=(int(n), WIDTH)) for n in rng.integers(5, 30, size=64)]
total = torch.zeros(())
for x in DataLoader(data, batch_size=16, collate_fn=collate):
    total += x.pow(2).sum()
print(total.item(), x.shape, x.dtype)
