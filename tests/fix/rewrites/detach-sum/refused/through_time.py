# keeps `total = total + nn` -> refused: goes into a backward later
import torch
from torch import nn

cell = nn.GRUCell(4, 16)
head = nn.Linear(16, 4)
optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()])
for sequence in torch.randn(50, 20, 8, 4):
    hidden = torch.zeros(8, 16)
    total = 0
    for now, following in zip(sequence[:-1], sequence[1:]):
        hidden = cell(now, hidden)
        total = total + nn.functional.mse_loss(head(hidden), following)
    optimizer.zero_grad()
    (total / 19).backward()
    optimizer.step()
