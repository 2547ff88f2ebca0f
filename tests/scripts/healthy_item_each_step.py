"""Reads the loss in every step, as most scripts do, and shows a progress bar."""

import torch
from parts import Pixels, conv, forever, threads
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm

threads()
model = conv(64)
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
bar = tqdm(forever(DataLoader(Pixels(), batch_size=32)))
for inputs, targets in bar:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    bar.set_postfix(loss=loss.item())
