# keeps `self.history.append`
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self.history = []

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            for x, y in loader:
                self.history.append(self.step(x, y).detach())
            print(f"epoch {epoch}: {sum(self.history) / len(self.history):.4f}")


data = TensorDataset(torch.randn(256, 8), torch.randn(256, 1))
Trainer(nn.Linear(8, 1)).fit(DataLoader(data, batch_size=16), 3)
