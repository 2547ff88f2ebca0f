# graph `logits = model(x)` -> refused: `requires_grad_` in this file says
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train_epoch(model, loader, optimizer):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


def evaluate(model, loader):
    """Accuracy and mean loss."""
    model.eval()
    correct, total, losses = 0, 0, []
    for x, y in loader:
        logits = model(x)
        losses.append(nn.functional.cross_entropy(logits, y))
        correct += (logits.argmax(1) == y).sum().item()
        total += y.numel()
    return correct / total, torch.stack(losses).mean().item()


def pull(net, x):
    x = x.requires_grad_(True)
    return torch.autograd.grad(net(x).sum(), x, create_graph=True)[0]


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 4)

    def forward(self, x):
        return pull(self.net, x)


model = Energy()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(256, 8), torch.randint(0, 4, (256,)))
for epoch in range(3):
    train_epoch(model, DataLoader(data, batch_size=16, shuffle=True), optimizer)
    print(epoch, evaluate(model, DataLoader(data, batch_size=64)))
