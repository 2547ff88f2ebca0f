"""A training loop with Accelerate."""

import torch
from accelerate import Accelerator
from parts import conv, forever, threads
from torch import nn


def run(loader, model=None, after_step=None):
    threads()
    accelerator = Accelerator(cpu=True)
    model = model or conv()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step, (inputs, targets) in enumerate(forever(loader)):
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if after_step is not None:
            after_step(step, accelerator, loss)
