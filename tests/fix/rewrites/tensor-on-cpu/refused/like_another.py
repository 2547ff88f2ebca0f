# cuda; hot `state = torch.zeros` 0.2 -> refused: does not plainly name a device
import torch
from torch import nn

device = torch.device("cuda")
cell = nn.GRUCell(8, 512).to(device)
for step in range(100):
    x = torch.randn(64, 8).to(device)
    state = torch.zeros(64, 512).to(x)
    cell(x, state).mean().backward()
