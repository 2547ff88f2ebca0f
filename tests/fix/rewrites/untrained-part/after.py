# hot `loss.backward()` 0.4
import torch
from torch import nn


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
    model.requires_grad_(False)
    model.head.requires_grad_(True)
    optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for step in range(20):
        x, y = torch.randn(16, 8), torch.randint(2, (16,))
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(step, loss.item())


main()
