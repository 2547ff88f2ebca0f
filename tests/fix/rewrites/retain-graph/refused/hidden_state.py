# hot `loss.backward(retain` 0.4 -> refused: goes from one step into the next
import torch
from torch import nn

cell, head = nn.GRUCell(4, 16), nn.Linear(16, 4)
hidden = torch.zeros(8, 16)
for now, following in zip(torch.randn(50, 8, 4), torch.randn(50, 8, 4)):
    hidden = cell(now, hidden)
    loss = nn.functional.mse_loss(head(hidden), following)
    loss.backward(retain_graph=True)
