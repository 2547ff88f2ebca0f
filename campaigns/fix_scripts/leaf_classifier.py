"""Leaf disease classifier. Images live in per-plant archives."""
import os
import random
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader

SEED = 7
N_PLANTS = 60
PER_PLANT = 16
CLASSES = 5
EPOCHS = 10
BATCH = 16

random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)


def write_archives(root):
    yy, xx = np.mgrid[0:32, 0:32]
    for p in range(N_PLANTS):
        images = np.zeros((PER_PLANT, 3, 32, 32), dtype=np.uint8)
        labels = np.random.randint(0, CLASSES, size=PER_PLANT)
        for k, lab in enumerate(labels):
            base = np.array([60, 140, 50]).reshape(3, 1, 1) + np.random.randint(-15, 15, (3, 1, 1))
            img = np.repeat(np.repeat(base, 32, 1), 32, 2).astype(np.float32)
            for _ in range(lab * 2):
                cy, cx = np.random.randint(4, 28, 2)
                r = np.random.uniform(1.5, 3.5)
                spot = ((yy - cy) ** 2 + (xx - cx) ** 2) < r * r
                img[:, spot] = np.array([[130.0], [90.0], [40.0]])
            img += np.random.normal(0, 12, img.shape)
            images[k] = np.clip(img, 0, 255).astype(np.uint8)
        np.savez_compressed(os.path.join(root, f"plant_{p:02d}.npz"), images=images, labels=labels)


class LeafDataset(Dataset):
    def __init__(self, root, plants):
        self.paths = [os.path.join(root, f"plant_{p:02d}.npz") for p in plants]
        self.index = []
        for path in self.paths:
            n = len(np.load(path)["labels"])
            self.index += [(path, i) for i in range(n)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, idx):
        path, i = self.index[idx]
        archive = np.load(path)
        img = torch.from_numpy(archive["images"][i]).float() / 255.0
        label = int(archive["labels"][i])
        return (img - 0.4) / 0.25, label


class LeafNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        )
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x):
        return self.head(self.features(x).mean(dim=(2, 3)))


def run():
    with tempfile.TemporaryDirectory() as root:
        write_archives(root)
        train_set = LeafDataset(root, range(0, 54))
        test_set = LeafDataset(root, range(54, N_PLANTS))
        train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True)
        test_loader = DataLoader(test_set, batch_size=64)

        net = LeafNet()
        opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS)
        loss_fn = nn.CrossEntropyLoss()

        for epoch in range(EPOCHS):
            net.train()
            running = 0.0
            for x, y in train_loader:
                opt.zero_grad()
                loss = loss_fn(net(x), y)
                loss.backward()
                opt.step()
                running += loss.item() * len(y)
            sched.step()
            if epoch % 2 == 0:
                net.eval()
                hits = 0
                with torch.no_grad():
                    for x, y in test_loader:
                        hits += (net(x).argmax(1) == y).sum().item()
                print(f"epoch {epoch:2d}  loss {running / len(train_set):.4f}  test acc {hits / len(test_set):.3f}")


if __name__ == "__main__":
    run()
