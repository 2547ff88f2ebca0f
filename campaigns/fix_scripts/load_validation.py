#!/usr/bin/env python
# coding: utf-8

# # Day-ahead electricity load forecasting with a GRU
# Exported from `load_forecast.ipynb`

# In[1]:

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
np.random.seed(0)
device = 'cuda' if torch.cuda.is_available() else 'cpu'


# ## Data
# Hourly load: daily and weekly cycles, a temperature effect and AR(1) noise.

# In[2]:

HOURS = 24 * 365
t = np.arange(HOURS)
temp = 12 - 10 * np.cos(2 * np.pi * t / HOURS) + 4 * np.sin(2 * np.pi * (t % 24) / 24)
noise = np.zeros(HOURS)
eps = np.random.randn(HOURS) * 0.03
for k in range(1, HOURS):
    noise[k] = 0.9 * noise[k - 1] + eps[k]
load = (1.0 + 0.25 * np.sin(2 * np.pi * (t % 24 - 7) / 24)
        - 0.12 * ((t // 24) % 7 >= 5) + 0.015 * np.abs(temp - 16) + noise)

feats = np.stack([
    (load - load.mean()) / load.std(),
    (temp - temp.mean()) / temp.std(),
    np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24),
    ((t // 24) % 7 >= 5).astype(float),
], axis=1).astype(np.float32)
feats.shape


# In[3]:

LOOKBACK, HORIZON = 96, 24

def windows(series, first, last, stride):
    starts = range(first, last - LOOKBACK - HORIZON, stride)
    x = np.stack([series[s:s + LOOKBACK] for s in starts])
    y = np.stack([series[s + LOOKBACK:s + LOOKBACK + HORIZON, 0] for s in starts])
    return torch.from_numpy(x), torch.from_numpy(y)

split = int(HOURS * 0.6)
x_train, y_train = windows(feats, 0, split, stride=4)
x_val, y_val = windows(feats, split, HOURS, stride=2)

train_dl = DataLoader(TensorDataset(x_train, y_train), batch_size=64, shuffle=True)
val_dl = DataLoader(TensorDataset(x_val, y_val), batch_size=128)
len(train_dl), len(val_dl)


# ## Model

# In[4]:

class Forecaster(nn.Module):
    def __init__(self, n_feats=5, hidden=64, layers=2):
        super().__init__()
        self.gru = nn.GRU(n_feats, hidden, num_layers=layers, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, 64), nn.ReLU(), nn.Linear(64, HORIZON))

    def forward(self, x):
        out, _ = self.gru(x)
        return self.head(out[:, -1])

model = Forecaster().to(device)
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
criterion = nn.MSELoss()
sum(p.numel() for p in model.parameters())


# ## Training

# In[5]:

EPOCHS = 8
history = []

for epoch in range(EPOCHS):
    model.train()
    train_loss = 0.0
    for xb, yb in train_dl:
        xb, yb = xb.to(device), yb.to(device)
        opt.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        opt.step()
        train_loss += loss.item() * len(xb)
    train_loss /= len(x_train)

    model.eval()
    preds, truth = [], []
    for xb, yb in val_dl:
        preds.append(model(xb.to(device)))
        truth.append(yb.to(device))
    preds, truth = torch.cat(preds), torch.cat(truth)
    val_loss = criterion(preds, truth).item()
    mae = (preds - truth).abs().mean(dim=0)
    history.append((train_loss, val_loss))

    print(f'epoch {epoch + 1}/{EPOCHS}  train {train_loss:.6f}  val {val_loss:.6f}  '
          f'mae@1h {mae[0].item():.4f}  mae@24h {mae[-1].item():.4f}', flush=True)


# ## Result
# Compare with the naive forecast "same hour yesterday".

# In[6]:

naive = x_val[:, -24:, 0]
print('naive mse', round(((naive - y_val) ** 2).mean().item(), 6))
print('best epoch', 1 + int(np.argmin([v for _, v in history])))
