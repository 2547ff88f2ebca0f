# hot `loss = model` 0.5
import torch
from torch.utils.data import DataLoader


class Collator:
    def __init__(self, max_len):
        self.max_len = max_len

    def __call__(self, rows):
        x = torch.zeros(len(rows), self.max_len)
        for i, row in enumerate(rows):
            x[i, : len(row)] = torch.tensor(row)
        longest = 1 + max((x != 0).any(0).nonzero().flatten().tolist(), default=0)
        x = x[:, :longest]
        return x


collator = Collator(128)
loader = DataLoader([[1.0] * (n % 30 + 1) for n in range(512)], batch_size=16, collate_fn=collator)
model = torch.nn.Identity()
for x in loader:
    loss = model(x).sum()
