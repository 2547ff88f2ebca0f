"""A loop on the GPU for the scripts that need one."""

import torch
from parts import PACE, mlp, threads
from torch import nn


def train(hidden, batch, depth=4, before_step=None, after_step=None):
    threads()
    torch.set_float32_matmul_precision("high")
    model = mlp(hidden=hidden, depth=depth).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    inputs, targets = torch.randn(batch, 64, device="cuda"), torch.randint(0, 10, (batch,), device="cuda")
    step = 0
    while not PACE.time_is_up():
        x = before_step() if before_step is not None else inputs
        loss = nn.functional.cross_entropy(model(x), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if after_step is not None:
            after_step(step, model, loss)
        elif step % 20 == 0:
            loss.item()
        step += 1
        PACE.step()
