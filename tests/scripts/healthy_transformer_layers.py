"""torch.nn.TransformerEncoder with AdamW and clipping."""

import torch
from parts import PACE, threads
from torch import nn

threads()
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 512, batch_first=True), 4)
optimizer = torch.optim.AdamW(model.parameters())
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)
while not PACE.time_is_up():
    x = torch.randn(16, 64, 128)
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    PACE.step()
