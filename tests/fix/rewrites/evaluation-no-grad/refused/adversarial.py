# graph `logits = model(fgsm` -> refused: gradients
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def fgsm(model, x, y, eps=0.1):
    x = x.clone().requires_grad_(True)
    nn.functional.cross_entropy(model(x), y).backward()
    return (x + eps * x.grad.sign()).detach()


def evaluate_robust(model, loader):
    model.eval()
    correct = 0
    for x, y in loader:
        logits = model(fgsm(model, x, y))
        correct += (logits.argmax(1) == y).sum().item()
    return correct


net = nn.Linear(8, 4)
data = TensorDataset(torch.randn(256, 8), torch.randint(0, 4, (256,)))
print(evaluate_robust(net, DataLoader(data, batch_size=64)))
