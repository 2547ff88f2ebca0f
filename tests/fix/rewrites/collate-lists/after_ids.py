# hot `rows = ` 0.5
import numpy as np
import torch
from torch.utils.data import DataLoader


def collate(samples):
    samples = sorted(samples, key=len, reverse=True)
    longest = len(samples[0])
    padded = []
    for sample in samples:
        rows = torch.as_tensor(sample, dtype=torch.int64)
        rows = torch.cat([rows, torch.zeros(longest - len(rows), dtype=torch.int64)])
        padded.append(rows)
    return torch.stack(padded)


rng = np.random.default_rng(0)
data = [rng.integers(0, 1 << 40, size=int(n)) for n in rng.integers(5, 30, size=64)]
total = torch.zeros((), dtype=torch.int64)
for x in DataLoader(data, batch_size=16, collate_fn=collate):
    total += x.sum()
print(total.item(), x.shape, x.dtype)
