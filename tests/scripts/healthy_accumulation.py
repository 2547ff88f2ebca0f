"""bf16 autocast, gradient accumulation, loss logged every 50 steps, a checkpoint now and then."""

import pathlib
import tempfile

import torch
from parts import Pixels, conv, forever, threads
from torch import nn
from torch.utils.data import DataLoader

threads()
place = pathlib.Path(tempfile.mkdtemp(), "last.pt")
model = conv(48)
optimizer = torch.optim.AdamW(model.parameters())
running = 0.0
for step, (inputs, targets) in enumerate(forever(DataLoader(Pixels(), batch_size=32, num_workers=1))):
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(inputs), targets) / 4
    loss.backward()
    running += loss.item()
    if step % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
    if step % 50 == 49:
        print(step, running / 50, flush=True)
        running = 0.0
    if step % 500 == 499:
        torch.save(model.state_dict(), place)
