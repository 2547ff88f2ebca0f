# anomaly -> refused: 2 places
import torch
from torch import nn

torch.autograd.set_detect_anomaly(True)
model = nn.Linear(4, 1)
for _ in range(100):
    with torch.autograd.set_detect_anomaly(True):
        model(torch.randn(8, 4)).sum().backward()
