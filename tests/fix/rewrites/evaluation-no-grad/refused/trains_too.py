# hot `loss = nn.functional` 0.5 -> refused: gradients are needed in it
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def run_valid_or_train(model, loader, optimizer=None):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item()
    return total


net = nn.Linear(8, 1)
batches = DataLoader(TensorDataset(torch.randn(256, 8), torch.randn(256, 1)), batch_size=16)
run_valid_or_train(net, batches, torch.optim.SGD(net.parameters(), lr=0.01))
run_valid_or_train(net, batches)
