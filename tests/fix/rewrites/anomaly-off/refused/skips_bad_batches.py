# anomaly -> refused: a try around it
import torch
from torch import nn

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    optimizer.zero_grad()
    try:
        with torch.autograd.detect_anomaly():
            model(torch.randn(8, 4)).log().sum().backward()
    except RuntimeError:
        print(f"step {step}: NaN, skipped")
        continue
    optimizer.step()
