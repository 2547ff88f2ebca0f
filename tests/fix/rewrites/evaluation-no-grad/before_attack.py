# graph `logits = model(x)`
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


def fgsm(model, x, y):
    x = x.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), x)
    return (x + 0.1 * slope.sign()).detach()


model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(256, 8), torch.randint(0, 4, (256,)))
for epoch in range(3):
    train_epoch(model, DataLoader(data, batch_size=16, shuffle=True), optimizer)
    fgsm(model, *data[:8])
    print(epoch, evaluate(model, DataLoader(data, batch_size=64)))
