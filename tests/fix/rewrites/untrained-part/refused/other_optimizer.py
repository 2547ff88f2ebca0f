# hot `loss.backward()` 0.4 -> refused: `Slow` is given `model` or weights of it
import torch
from torch import nn

from optimizers import Slow


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.body(x))


def main():
    torch.manual_seed(0)
    model = Net()
    model.body.eval()
    optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-3)
    slow = Slow(model.body.parameters())
    criterion = nn.CrossEntropyLoss()
    for step in range(20):
        x, y = torch.randn(16, 8), torch.randint(2, (16,))
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        slow.step()
        if step % 5 == 0:
            print(step, loss.item())


main()
