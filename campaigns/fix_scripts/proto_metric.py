"""Metric learning with class prototypes on synthetic sensor traces."""
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    n_classes: int = 20
    support_per_class: int = 12
    n_train: int = 1280
    n_test: int = 480
    length: int = 192
    emb: int = 32
    batch_size: int = 64
    epochs: int = 24
    lr: float = 2e-3
    temperature: float = 0.1
    seed: int = 17


class Traces:
    """Every class is a random harmonic signature with random phase jitter and gain."""

    def __init__(self, cfg):
        rng = np.random.default_rng(cfg.seed)
        self.length = cfg.length
        self.amp = rng.uniform(0.0, 1.0, size=(cfg.n_classes, 6))
        self.phase = rng.uniform(0, 2 * np.pi, size=(cfg.n_classes, 6))
        self.rng = rng

    def draw(self, labels):
        t = np.linspace(0, 2 * np.pi, self.length)[None, None, :]
        k = np.arange(1, 7)[None, :, None]
        jitter = 0.4 * self.rng.standard_normal((len(labels), 6, 1))
        gain = self.rng.uniform(0.7, 1.3, size=(len(labels), 1, 1))
        x = (gain * self.amp[labels][..., None] * np.sin(k * t + self.phase[labels][..., None] + jitter)).sum(1)
        x += 0.8 * self.rng.standard_normal(x.shape)
        return torch.from_numpy(x.astype(np.float32)).unsqueeze(1), torch.from_numpy(labels)


class Encoder(nn.Module):
    def __init__(self, emb):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 32, 7, padding=3), nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(32, 48, 5, padding=2), nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(48, 64, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool1d(4), nn.Flatten(),
            nn.Linear(256, emb),
        )

    def forward(self, x):
        return F.normalize(self.body(x), dim=1)


class PrototypeTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        source = Traces(cfg)
        support_labels = np.repeat(np.arange(cfg.n_classes), cfg.support_per_class)
        self.support = source.draw(support_labels)
        self.train = source.draw(source.rng.integers(0, cfg.n_classes, cfg.n_train))
        self.test = source.draw(source.rng.integers(0, cfg.n_classes, cfg.n_test))
        self.encoder = Encoder(cfg.emb).to(self.device)
        self.optimizer = torch.optim.Adam(self.encoder.parameters(), lr=cfg.lr)

    @torch.no_grad()
    def prototypes(self):
        x, y = self.support
        z = self.encoder(x.to(self.device))
        protos = torch.zeros(self.cfg.n_classes, self.cfg.emb, device=self.device)
        protos.index_add_(0, y.to(self.device), z)
        return F.normalize(protos, dim=1)

    def train_epoch(self):
        self.encoder.train()
        x_all, y_all = self.train
        losses = []
        for idx in torch.randperm(len(x_all)).split(self.cfg.batch_size):
            x, y = x_all[idx].to(self.device), y_all[idx].to(self.device)
            protos = self.prototypes()
            logits = self.encoder(x) @ protos.t() / self.cfg.temperature
            loss = F.cross_entropy(logits, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return float(np.mean(losses))

    @torch.no_grad()
    def accuracy(self):
        self.encoder.eval()
        x, y = self.test
        scores = self.encoder(x.to(self.device)) @ self.prototypes().t()
        return (scores.argmax(1).cpu() == y).float().mean().item()

    def fit(self):
        for epoch in range(1, self.cfg.epochs + 1):
            loss = self.train_epoch()
            print(f"epoch {epoch}  loss {loss:.6f}  test accuracy {self.accuracy():.4f}", flush=True)


if __name__ == "__main__":
    PrototypeTrainer(Config()).fit()
