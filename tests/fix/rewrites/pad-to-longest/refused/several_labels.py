# hot `loss = model` 0.5 -> nothing
import torch
from torch.utils.data import DataLoader

MAX_LABELS = 128


def collate(rows):
    marks = torch.zeros(len(rows), MAX_LABELS)
    for i, row in enumerate(rows):
        marks[i, row] = 1.0
    return marks


loader = DataLoader([[n % 30, n % 7] for n in range(512)], batch_size=16, collate_fn=collate)
model = torch.nn.Identity()
for marks in loader:
    loss = model(marks).sum()
