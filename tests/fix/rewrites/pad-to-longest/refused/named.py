# hot `loss = model` 0.5 -> refused: `longest` is a name of this file already
import torch
from torch.utils.data import DataLoader

MAX_LEN = 128
longest = 30


def collate(rows):
    x = torch.zeros(len(rows), MAX_LEN)
    for i, row in enumerate(rows):
        x[i, : len(row)] = torch.tensor(row)
    return x


loader = DataLoader([[1.0] * (n % longest + 1) for n in range(512)], batch_size=16, collate_fn=collate)
model = torch.nn.Identity()
for x in loader:
    loss = model(x).sum()
