"""Denoising autoencoder; keeps the weights with the lowest loss and scores them at the end."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class Denoiser(nn.Module):
    def __init__(self, size=256, width=1200):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.decoder = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, size))

    def forward(self, x):
        return self.decoder(self.encoder(x))


def signals(n, seed, size=256):
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 6.28, size)
    freq = torch.randint(1, 9, (n, 1), generator=g)
    return torch.sin(freq * t + 6.28 * torch.rand(n, 1, generator=g))


def main():
    torch.manual_seed(6)
    clean = signals(4000, 1)
    model = Denoiser()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    best_loss, best_state = float("inf"), None
    for step in range(800):
        idx = torch.randint(0, len(clean), (32,))
        x = clean[idx]
        loss = F.mse_loss(model(x + 0.5 * torch.randn(x.shape)), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        snapshot = copy.deepcopy(model.state_dict())
        if loss.item() < best_loss:
            best_loss, best_state = loss.item(), snapshot
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.5f} best {best_loss:.5f}")
    model.load_state_dict(best_state)
    with torch.no_grad():
        test = signals(500, 2)
        noisy = test + 0.5 * torch.randn(test.shape, generator=torch.Generator().manual_seed(3))
        print(f"test mse of the best weights {F.mse_loss(model(noisy), test).item():.5f}")


if __name__ == "__main__":
    main()
