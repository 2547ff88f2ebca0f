# hot `optimizer.zero_grad` 0.05 -> refused: switches gradients
import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step, x in enumerate(torch.randn(100, 4, 8)):
    if step == 50:
        for p in model[0].parameters():
            p.requires_grad = False
    optimizer.zero_grad(False)
    model(x).sum().backward()
    optimizer.step()
