"""Leaf shapes from outlines; drawing is slow, so two workers do it ahead of time."""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Leaves(Dataset):
    def __init__(self, n, seed, size=48):
        self.n, self.seed, self.size = n, seed, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng([self.seed, i])
        lobes = i % 4 + 2
        angles = np.linspace(0, 2 * np.pi, 160)
        radius = 12 + 5 * np.cos(lobes * angles + rng.uniform(0, 6)) + rng.normal(0, 0.6, len(angles))
        yy, xx = np.mgrid[: self.size, : self.size] - self.size / 2
        image = np.interp(np.arctan2(yy, xx) % (2 * np.pi), angles, radius) > np.hypot(yy, xx)
        return torch.from_numpy(image.astype(np.float32))[None], lobes - 2


class LeafNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 48, 5, padding=2), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(48, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )
        self.fc = nn.Linear(64, 4)

    def forward(self, x):
        return self.fc(self.features(x))


def main():
    torch.manual_seed(13)
    train = DataLoader(Leaves(2400, 1), batch_size=48, shuffle=True, num_workers=2)
    test = DataLoader(Leaves(400, 2), batch_size=100)
    net = LeafNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(4):
        for step, (x, y) in enumerate(train):
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            acc = np.mean([(net(x).argmax(1) == y).float().mean().item() for x, y in test])
        print(f"epoch {epoch} loss {loss.item():.4f} test {acc:.4f}")


if __name__ == "__main__":
    main()
