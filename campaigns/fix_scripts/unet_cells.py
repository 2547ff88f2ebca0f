"""Tiny U-Net for semantic segmentation of synthetic microscopy images."""
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

CLASSES = ("background", "cytoplasm", "nucleus", "debris")


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class CellDataset(Dataset):
    def __init__(self, n, size=48, seed=0):
        rng = np.random.RandomState(seed)
        yy, xx = np.mgrid[:size, :size]
        self.images = np.zeros((n, 1, size, size), dtype=np.float32)
        self.masks = np.zeros((n, size, size), dtype=np.int64)
        for k in range(n):
            mask = np.zeros((size, size), dtype=np.int64)
            for _ in range(rng.randint(3, 7)):
                cy, cx, r = rng.randint(6, size - 6), rng.randint(6, size - 6), rng.randint(6, 11)
                d = np.sqrt((yy - cy) ** 2 + (xx - cx) ** 2)
                mask[d < r] = 1
                mask[d < r * 0.45] = 2
            for _ in range(5):
                cy, cx = rng.randint(0, size - 3, size=2)
                mask[cy:cy + 3, cx:cx + 3] = 3
            level = np.array([0.1, 0.4, 0.75, 0.95])[mask]
            self.images[k, 0] = level + 0.15 * rng.randn(size, size)
            self.masks[k] = mask

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i]), torch.from_numpy(self.masks[i])


def double_conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
        nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, n_classes, w=8):
        super().__init__()
        self.down1 = double_conv(1, w)
        self.down2 = double_conv(w, 2 * w)
        self.mid = double_conv(2 * w, 4 * w)
        self.up2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, stride=2)
        self.dec2 = double_conv(4 * w, 2 * w)
        self.up1 = nn.ConvTranspose2d(2 * w, w, 2, stride=2)
        self.dec1 = double_conv(2 * w, w)
        self.head = nn.Conv2d(w, n_classes, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        c = self.mid(self.pool(b))
        x = self.dec2(torch.cat([self.up2(c), b], dim=1))
        x = self.dec1(torch.cat([self.up1(x), a], dim=1))
        return self.head(x)


class IoUMeter:
    def __init__(self, n_classes):
        self.n = n_classes
        self.reset()

    def reset(self):
        self.confusion = torch.zeros(self.n, self.n, dtype=torch.int64)

    def update(self, pred, target):
        for t, p in zip(target.view(-1), pred.view(-1)):
            self.confusion[t.long(), p.long()] += 1

    def value(self):
        c = self.confusion.double()
        inter = c.diag()
        union = c.sum(0) + c.sum(1) - inter
        return (inter / union.clamp(min=1)).tolist()


class Trainer:
    def __init__(self, model, train_set, batch_size=8, lr=3e-3):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = model.to(self.device)
        self.loader = DataLoader(train_set, batch_size=batch_size, shuffle=True, drop_last=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.criterion = nn.CrossEntropyLoss(weight=torch.tensor([0.5, 1.0, 1.5, 2.0]).to(self.device))
        self.meter = IoUMeter(len(CLASSES))

    def run_epoch(self):
        self.model.train()
        self.meter.reset()
        total = 0.0
        for images, masks in self.loader:
            images, masks = images.to(self.device), masks.to(self.device)
            self.optimizer.zero_grad()
            logits = self.model(images)
            loss = self.criterion(logits, masks)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            self.meter.update(logits.argmax(dim=1).cpu(), masks.cpu())
        return total / len(self.loader), self.meter.value()

    def fit(self, epochs):
        for epoch in range(epochs):
            loss, iou = self.run_epoch()
            per_class = " ".join(f"{c}={v:.3f}" for c, v in zip(CLASSES, iou))
            print(f"Epoch {epoch}: loss={loss:.6f} mIoU={np.mean(iou):.4f} ({per_class})", flush=True)


if __name__ == "__main__":
    seed_everything(2024)
    trainer = Trainer(UNet(len(CLASSES)), CellDataset(96, seed=1))
    trainer.fit(epochs=6)
