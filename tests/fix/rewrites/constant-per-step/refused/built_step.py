# hot `scores = model` 0.4 -> refused: hands it on
import torch
from torch import nn


def causal(length):
    mask = torch.zeros(length, length)
    for i in range(length):
        mask[i, i + 1 :] = float("-inf")
    return mask


torch.manual_seed(0)
model = nn.Linear(16, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    x = torch.randn(4, 64, 16)
    scores = model(x) + causal(64)[: step + 1].sum() + causal(step)
    loss = scores.softmax(-1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
