#!/usr/bin/env python
# coding: utf-8

# # Energy forecast with an MLP-Mixer-ish network
# exported from `energy_v3_final.ipynb`

# In[1]:

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

np.random.seed(3)
torch.manual_seed(3)


# In[2]:
# two years of hourly data for 40 houses

hours = np.arange(24 * 365)
houses = []
for h in range(40):
    day = np.sin(2 * np.pi * (hours + np.random.randint(0, 24)) / 24)
    week = 0.5 * np.sin(2 * np.pi * hours / (24 * 7) + np.random.rand())
    year = 0.8 * np.cos(2 * np.pi * hours / (24 * 365))
    noise = 0.2 * np.random.randn(len(hours))
    houses.append(day * np.random.uniform(0.5, 1.5) + week + year + noise)
series = torch.tensor(np.array(houses), dtype=torch.float32)
series = (series - series.mean()) / series.std()
series.shape


# In[3]:

CONTEXT = 24 * 14
HORIZON = 24
BATCH = 128

g = torch.Generator().manual_seed(3)


def get_batch():
    house = torch.randint(0, series.shape[0], (BATCH,), generator=g)
    start = torch.randint(0, series.shape[1] - CONTEXT - HORIZON, (BATCH,), generator=g)
    pos = start[:, None] + torch.arange(CONTEXT + HORIZON)
    chunk = series[house[:, None], pos]
    return chunk[:, :CONTEXT], chunk[:, CONTEXT:]


# In[4]:

class Forecaster(nn.Module):
    def __init__(self, width=512, depth=3):
        super().__init__()
        self.inp = nn.Linear(CONTEXT, width)
        self.hidden = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(depth)])
        self.out = nn.Linear(width, HORIZON)

    def forward(self, x):
        x = F.gelu(self.inp(x))
        for lin, norm in zip(self.hidden, self.norms):
            x = x + F.gelu(lin(norm(x)))
        return self.out(x)


model = Forecaster()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
sum(p.numel() for p in model.parameters())


# In[5]:
# keep an eye on the conditioning of the weights (v2 exploded after a while)

def weight_stats(model):
    stats = {}
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 2:
                s = torch.linalg.svdvals(p)
                stats[name] = (s[0].item(), (s[0] / s[-1]).item())
    return stats


# In[6]:

losses = []
for step in range(1, 201):
    x, y = get_batch()
    pred = model(x)
    loss = F.smooth_l1_loss(pred, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    stats = weight_stats(model)
    if step % 20 == 0:
        print("step", step, "loss %.5f" % np.mean(losses[-20:]))
        for name, (smax, cond) in stats.items():
            print("    %-18s smax %.3f cond %.1f" % (name, smax, cond))


# In[7]:

model.eval()
with torch.no_grad():
    x, y = get_batch()
    mae = (model(x) - y).abs().mean().item()
    naive = (x[:, -HORIZON:] - y).abs().mean().item()
print("MAE %.4f (same hour yesterday: %.4f)" % (mae, naive))
