# hot `optimizer.zero_grad` 0.05 -> refused: is skipped by the optimizer
import torch
from torch import nn


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.few, self.many = nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x):
        if x.mean() > 0:
            return self.few(x)
        return self.many(x)


model = Experts()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
for x in torch.randn(100, 4, 8):
    optimizer.zero_grad(set_to_none=False)
    model(x).sum().backward()
    optimizer.step()
