"""Learns the energy of a double pendulum; writes the loss curve to curve.csv at the end."""
import csv

import torch
import torch.nn as nn

torch.manual_seed(10)


class EnergyNet(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
            nn.Linear(width, 1),
        )

    def forward(self, state):
        return self.layers(state).squeeze(1)


def energy(state):
    a, b, va, vb = state.unbind(1)
    return va ** 2 + 0.5 * vb ** 2 + va * vb * torch.cos(a - b) - 2 * torch.cos(a) - torch.cos(b)


class Trainer:
    def __init__(self, steps, batch_size=512):
        self.model = EnergyNet()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.steps, self.batch_size = steps, batch_size
        self.history = []

    def train(self):
        for step in range(self.steps):
            state = 2 * torch.randn(self.batch_size, 4)
            penalty = sum((p ** 2).sum() for p in self.model.parameters())
            loss = nn.functional.mse_loss(self.model(state), energy(state)) + 1e-6 * penalty
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.history.append(nn.functional.l1_loss(self.model(state), energy(state)))
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f} mae {self.history[-1].item():.4f}")

    def save_curve(self, path):
        with open(path, "w", newline="") as f:
            rows = csv.writer(f)
            rows.writerow(["step", "mae"])
            for step, value in enumerate(self.history):
                rows.writerow([step, f"{value.item():.6f}"])


if __name__ == "__main__":
    trainer = Trainer(steps=600)
    trainer.train()
    trainer.save_curve("curve.csv")
