# hot `writer.add_scalar` 0.4 -> refused: runs for what is logged
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from torch.utils.tensorboard import SummaryWriter

writer = SummaryWriter()
history = []


def smoothed(value):
    history.append(value)
    return sum(history[-10:]) / 10


model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(256, 8), torch.randn(256, 1)), batch_size=16, shuffle=True)
for epoch in range(3):
    running = 0.0
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        writer.add_scalar("loss", smoothed(loss.item()), step)
