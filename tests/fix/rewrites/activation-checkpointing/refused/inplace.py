# died `model(torch.ones` -> refused: may change what a block got
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(0.1)

    def forward(self, x, scale=1.0):
        x += 1
        return x + scale * self.drop(self.down(torch.relu(self.up(x))))


class Net(nn.Module):
    def __init__(self, depth=24, width=256):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    optimizer.zero_grad()
    model(torch.ones(512, 256)).pow(2).mean().backward()
    optimizer.step()
