"""Day-ahead load forecasting with a temporal convolutional network."""
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    history: int = 168
    horizon: int = 24
    channels: int = 32
    batch_size: int = 32
    lr: float = 1e-3
    max_steps: int = 360
    eval_every: int = 60
    log_every: int = 10
    seed: int = 5


def synthetic_load(hours, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    daily = np.sin(2 * np.pi * t / 24) + 0.4 * np.sin(4 * np.pi * t / 24 + 0.7)
    weekly = 0.5 * np.cos(2 * np.pi * t / 168)
    temp = 0.8 * np.sin(2 * np.pi * t / 8760) + 0.1 * np.cumsum(rng.normal(size=hours)) / np.sqrt(hours)
    load = daily + weekly + 0.6 * temp + 0.15 * rng.normal(size=hours)
    return np.stack([load, temp, np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24)]).astype(np.float32)


class LoadWindows(Dataset):
    def __init__(self, series, cfg, stride=1):
        self.series = torch.from_numpy(series)
        self.cfg = cfg
        last = series.shape[1] - cfg.history - cfg.horizon
        self.starts = list(range(0, last, stride))

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        s = self.starts[i]
        m = s + self.cfg.history
        return self.series[:, s:m], self.series[0, m:m + self.cfg.horizon]


class ResidualTCN(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        c = cfg.channels
        self.inp = nn.Conv1d(4, c, 1)
        self.blocks = nn.ModuleList()
        for d in (1, 2, 4, 8, 16):
            self.blocks.append(nn.Sequential(
                nn.Conv1d(c, c, 3, dilation=d, padding=d), nn.GELU(),
                nn.Conv1d(c, c, 3, dilation=d, padding=d), nn.GELU(),
            ))
        self.out = nn.Linear(c, cfg.horizon)

    def forward(self, x):
        h = self.inp(x)
        for b in self.blocks:
            h = h + b(h)
        return self.out(h[:, :, -1])


class Trainer:
    def __init__(self, cfg, model, train_set, val_set):
        self.cfg = cfg
        self.model = model
        self.train_loader = DataLoader(train_set, cfg.batch_size, shuffle=True, drop_last=True)
        self.val_loader = DataLoader(val_set, 64)
        self.opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
        self.loss_fn = nn.MSELoss()
        self.best = float("inf")

    def batches(self):
        while True:
            yield from self.train_loader

    def validate(self):
        self.model.eval()
        total = 0.0
        for x, y in self.val_loader:
            pred = self.model(x)
            total += self.loss_fn(pred, y)
        self.model.train()
        return total / len(self.val_loader)

    def fit(self):
        self.model.train()
        for step, (x, y) in enumerate(self.batches()):
            if step == self.cfg.max_steps:
                break
            self.opt.zero_grad()
            loss = self.loss_fn(self.model(x), y)
            loss.backward()
            self.opt.step()
            if step % self.cfg.log_every == 0:
                print(f"step {step} loss {loss.item():.6f}")
            if (step + 1) % self.cfg.eval_every == 0:
                val = self.validate()
                self.best = min(self.best, val.item())
                print(f"step {step} val {val:.6f} best {self.best:.6f}")


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    np.random.seed(cfg.seed)
    series = synthetic_load(3 * 8760, cfg.seed)
    split = 2 * 8760 + 4000
    train = LoadWindows(series[:, :split], cfg)
    val = LoadWindows(series[:, split:], cfg, stride=5)
    Trainer(cfg, ResidualTCN(cfg), train, val).fit()


if __name__ == "__main__":
    main()
