# hot `rows = ` 0.5
import numpy as np
import torch
from torch.utils.data import DataLoader


def collate(samples):
    samples = sorted(samples, key=len, reverse=True)
    longest = len(samples[0])
    padded = []
    for sample in samples:
        rows = [int(v) for v in sample]
        rows += [0] * (longest - len(rows))
        padded.append(rows)
    return torch.tensor(padded)


rng = np.random.default_rng(0)
data = [rng.integers(0, 1 << 40, size=int(n)) for n in rng.integers(5, 30, size=64)]
total = torch.zeros((), dtype=torch.int64)
for x in DataLoader(data, batch_size=16, collate_fn=collate):
    total += x.sum()
print(total.item(), x.shape, x.dtype)
