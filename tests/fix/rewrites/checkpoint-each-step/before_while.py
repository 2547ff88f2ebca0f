# hot `self.save()` 0.4
import os

import torch
from torch import nn


class Trainer:
    def __init__(self, model, folder):
        self.model, self.folder = model, folder
        self.optimizer = torch.optim.Adam(model.parameters())
        self.done = 0

    def save(self):
        path = os.path.join(self.folder, "last.pt")
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, path + ".tmp")
        os.replace(path + ".tmp", path)

    def train_step(self, x, y):
        loss = nn.functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


    def fit(self, batches):
        while self.done < 100:
            self.done += 1
            self.train_step(*batches[self.done % len(batches)])
            self.save()


Trainer(nn.Linear(8, 1), "/tmp").fit([(torch.randn(4, 8), torch.randn(4, 1))] * 50)
