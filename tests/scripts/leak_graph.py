"""Sums up losses that still carry their graph."""

import torch
from parts import Pixels, conv, forever, threads
from torch import nn
from torch.utils.data import DataLoader


def main():
    threads()
    model = conv()
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for inputs, targets in forever(DataLoader(Pixels(), batch_size=16)):
        outputs = model(inputs)
        loss = nn.functional.cross_entropy(outputs, targets)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        losses.append(loss)


main()
