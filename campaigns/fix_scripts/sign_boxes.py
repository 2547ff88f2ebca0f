"""Road-sign localisation: predict class + box from a crop. Annotations come as one COCO-ish json."""
import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    root: Path
    epochs: int = 5
    steps: int = 0
    batch_size: int = 32
    image_size: int = 48
    n_train: int = 1000
    n_val: int = 200
    seed: int = 17


def build_dataset(cfg: Config) -> None:
    rng = np.random.default_rng(cfg.seed)
    n, s = cfg.n_train + cfg.n_val, cfg.image_size
    images = rng.normal(110, 25, size=(n, s, s, 3))
    entries = []
    for i in range(n):
        kind = int(rng.integers(4))
        w, h, x, y = (int(v) for v in rng.integers([12, 12, 0, 0], [24, 24, s - 24, s - 24]))
        patch = images[i, y:y + h, x:x + w]
        patch[..., kind % 3] += 90
        patch[::2] -= 70 * (kind == 3)
        entries.append({
            "id": i, "file": f"{i:06d}.png", "category": kind, "bbox": [x, y, w, h],
            "camera": {"yaw": float(rng.normal()), "pitch": float(rng.normal()), "exposure": float(rng.random())},
        })
    np.save(cfg.root / "images.npy", np.clip(images, 0, 255).astype(np.uint8))
    (cfg.root / "annotations.json").write_text(json.dumps({"version": 3, "images": entries}))


class SignDataset(Dataset):
    def __init__(self, root: Path, start: int, stop: int):
        self.images = np.load(root / "images.npy", mmap_mode="r")
        self.ann_file = root / "annotations.json"
        self.start, self.stop = start, stop

    def __len__(self):
        return self.stop - self.start

    def __getitem__(self, i):
        i += self.start
        with open(self.ann_file) as f:
            ann = json.load(f)["images"][i]
        size = self.images.shape[1]
        image = torch.from_numpy(self.images[i].astype(np.float32) / 127.5 - 1.0).permute(2, 0, 1)
        x, y, w, h = ann["bbox"]
        return image, ann["category"], torch.tensor([x, y, x + w, y + h]) / size


class SignNet(nn.Module):
    def __init__(self):
        super().__init__()
        widths, layers = [3, 16, 32, 64], []
        for a, b in zip(widths, widths[1:]):
            layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)]
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 36, 96), nn.ReLU())
        self.cls, self.box = nn.Linear(96, 4), nn.Linear(96, 4)

    def forward(self, x):
        z = self.body(x)
        return self.cls(z), self.box(z).sigmoid()


def iou(a, b):
    lt, rb = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    inter = (rb - lt).clamp(min=0).prod(1)
    area = (a[:, 2:] - a[:, :2]).clamp(min=0).prod(1) + (b[:, 2:] - b[:, :2]).prod(1)
    return inter / (area - inter)


def main(cfg: Config) -> None:
    build_dataset(cfg)
    torch.manual_seed(cfg.seed)
    train = DataLoader(SignDataset(cfg.root, 0, cfg.n_train), cfg.batch_size, shuffle=True)
    val = DataLoader(SignDataset(cfg.root, cfg.n_train, cfg.n_train + cfg.n_val), 100)
    net = SignNet()
    opt = torch.optim.Adam(net.parameters(), lr=1.5e-3)
    for epoch in range(cfg.epochs):
        net.train()
        for step, (x, c, b) in enumerate(train):
            if cfg.steps and step >= cfg.steps:
                break
            logits, pred = net(x)
            loss = F.cross_entropy(logits, c) + 5 * F.smooth_l1_loss(pred, b)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 8 == 0:
                print(f"epoch {epoch} step {step:3d} loss {loss.item():.4f}")
        net.eval()
        with torch.no_grad():
            scores = []
            for x, c, b in val:
                logits, pred = net(x)
                scores.append(torch.stack([(logits.argmax(1) == c).float(), iou(pred, b)]))
        acc, miou = torch.cat(scores, dim=1).mean(1).tolist()
        print(f"epoch {epoch}: acc {acc:.4f} mIoU {miou:.4f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=Config.epochs)
    ap.add_argument("--steps", type=int, default=Config.steps)
    with tempfile.TemporaryDirectory(prefix="signs_") as tmp:
        main(Config(root=Path(tmp), **vars(ap.parse_args())))
