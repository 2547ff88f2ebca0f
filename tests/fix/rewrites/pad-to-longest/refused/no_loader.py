# hot `loss = model` 0.5 -> nothing
import torch

MAX_LEN = 128


def table(rows):
    x = torch.zeros(len(rows), MAX_LEN)
    for i, row in enumerate(rows):
        x[i, : len(row)] = torch.tensor(row)
    return x


model = torch.nn.Identity()
for step in range(100):
    loss = model(table([[1.0] * (n % 30 + 1) for n in range(16)])).sum()
