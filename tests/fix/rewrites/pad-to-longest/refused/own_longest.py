# hot `loss = model` 0.5 -> nothing
import torch
from torch.utils.data import DataLoader


def collate(rows):
    x = torch.zeros(len(rows), max(len(row) for row in rows))
    for i, row in enumerate(rows):
        x[i, : len(row)] = torch.tensor(row)
    return x


loader = DataLoader([[1.0] * (n % 30 + 1) for n in range(512)], batch_size=16, collate_fn=collate)
model = torch.nn.Identity()
for x in loader:
    loss = model(x).sum()
