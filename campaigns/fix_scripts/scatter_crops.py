"""Defect classifier with on-the-fly crops. `--seed 7` is the run reported in the table."""
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def make_plates(n, seed, size=80):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, size=n)
    yy, xx = np.mgrid[:size, :size]
    plates = rng.normal(0, 28, size=(n, size, size)) + 120
    for plate, label in zip(plates, labels):
        for _ in range(10):
            cy, cx = rng.uniform(6, size - 6, size=2)
            dy, dx = yy - cy, xx - cx
            if label == 0:
                plate += 60 * np.exp(-(dy ** 2 + dx ** 2) / 10)
            elif label == 1:
                plate += 45 * np.exp(-dy ** 2 / 2 - dx ** 2 / 60)
            elif label == 2:
                plate += 45 * np.exp(-dx ** 2 / 2 - dy ** 2 / 60)
            else:
                plate -= 60 * np.exp(-(dy ** 2 + dx ** 2) / 10)
    return np.clip(plates, 0, 255).astype(np.uint8), labels


class CropDataset(Dataset):
    def __init__(self, plates, labels, crop=48, train=True):
        self.plates, self.labels, self.crop, self.train = plates, labels, crop, train

    def __len__(self):
        return len(self.plates)

    def _bilinear_rows(self, img, wobble):
        out = np.empty_like(img)
        cols = np.arange(img.shape[1], dtype=np.float32)
        for r in range(img.shape[0]):
            out[r] = np.interp(cols + wobble[r], cols, img[r])
        return out

    def __getitem__(self, i):
        plate, c = self.plates[i].astype(np.float32) / 255.0, self.crop
        if not self.train:
            o = (plate.shape[0] - c) // 2
            return torch.from_numpy(plate[None, o:o + c, o:o + c] - 0.5), int(self.labels[i])
        for _ in range(4):
            wobble = np.cumsum(np.random.normal(0, 0.15, size=plate.shape[0])).astype(np.float32)
            plate = self._bilinear_rows(plate, wobble)
        top, left = random.randint(0, plate.shape[0] - c), random.randint(0, plate.shape[1] - c)
        img = torch.from_numpy(plate[None, top:top + c, left:left + c].copy()) - 0.5
        if random.random() < 0.5:
            img = torch.flip(img, dims=(2,))
        return img + 0.05 * torch.randn(img.shape), int(self.labels[i])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.drop = nn.Dropout(0.25)
        self.fc = nn.Linear(48 * 4, 4)

    def forward(self, x):
        return self.fc(self.drop(self.features(x).flatten(1)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--steps", type=int, default=0)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--log-every", type=int, default=5)
    args = ap.parse_args()

    seed_everything(args.seed)
    train_loader = DataLoader(CropDataset(*make_plates(1600, 100)), batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(CropDataset(*make_plates(240, 200), train=False), batch_size=80)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        net.train()
        for step, (x, y) in enumerate(train_loader):
            if args.steps and step >= args.steps:
                break
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if (step + 1) % args.log_every == 0:
                print(f"epoch {epoch} it {step + 1} loss {loss.item():.4f}")
        net.eval()
        with torch.no_grad():
            acc = np.mean([(net(x).argmax(1) == y).float().mean().item() for x, y in val_loader])
        print(f"epoch {epoch} val acc {acc:.4f}")


if __name__ == "__main__":
    main()
