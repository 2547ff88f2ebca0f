# anomaly
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(model, loader, optimizer):
    with torch.autograd.detect_anomaly(check_nan=False):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    net = nn.Linear(8, 1)
    batches = DataLoader(TensorDataset(torch.randn(256, 8), torch.randn(256, 1)), batch_size=16)
    train(net, batches, torch.optim.SGD(net.parameters(), lr=0.01))
