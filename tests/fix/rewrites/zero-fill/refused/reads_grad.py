# hot `optimizer.zero_grad` 0.05 -> refused: reads `p.grad`
import torch
from torch import nn

model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.randn(100, 4, 8):
    optimizer.zero_grad(set_to_none=False)
    before = sum(float(p.grad.norm()) for p in model.parameters() if p.grad is not None)
    model(x).sum().backward()
    optimizer.step()
