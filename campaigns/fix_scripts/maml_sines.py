"""MAML for sine regression: all tasks of a meta-batch run as one batched network."""
import math

import torch

TASKS = 24
SHOTS = 10
QUERIES = 15
HIDDEN = 64
INNER_STEPS = 4
INNER_LR = 0.02
META_LR = 1e-3
META_STEPS = 1200
STEP_WEIGHTS = [0.1, 0.2, 0.3, 0.4]


def init_params(gen):
    sizes = [(1, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1)]
    params = []
    for fan_in, fan_out in sizes:
        w = torch.randn(fan_in, fan_out, generator=gen) * math.sqrt(2.0 / (fan_in + fan_out))
        params += [w.requires_grad_(True), torch.zeros(1, fan_out, requires_grad=True)]
    return params


def per_task(params, tasks):
    """One view of every parameter per task: (tasks, rows, cols)."""
    return [p.unsqueeze(0).expand(tasks, -1, -1) for p in params]


def net(x, weights):
    w1, b1, w2, b2, w3, b3 = weights
    h = torch.tanh(torch.baddbmm(b1, x, w1))
    h = torch.tanh(torch.baddbmm(b2, h, w2))
    return torch.baddbmm(b3, h, w3)


def sample_tasks(n, gen):
    amp = 0.5 + 2.5 * torch.rand(n, 1, 1, generator=gen)
    phase = math.pi * torch.rand(n, 1, 1, generator=gen)
    x = 10 * torch.rand(n, SHOTS + QUERIES, 1, generator=gen) - 5
    y = amp * torch.sin(x + phase)
    return x[:, :SHOTS], y[:, :SHOTS], x[:, SHOTS:], y[:, SHOTS:]


def mse(pred, y):
    """Mean over points, summed over tasks, so that each task sees its own gradient."""
    return (pred - y).pow(2).mean((1, 2)).sum()


def meta_loss_on(params, batch):
    sx, sy, qx, qy = batch
    weights = per_task(params, sx.size(0))
    total = 0.0
    for k in range(INNER_STEPS):
        support = mse(net(sx, weights), sy)
        grads = torch.autograd.grad(support, weights, create_graph=True)
        weights = [w - INNER_LR * g for w, g in zip(weights, grads)]
        query = mse(net(qx, weights), qy) / sx.size(0)
        total = total + STEP_WEIGHTS[k] * query
    return total, query


def adapted_error(params, batch):
    sx, sy, qx, qy = batch
    weights = [w.detach().requires_grad_(True) for w in per_task(params, sx.size(0))]
    for _ in range(INNER_STEPS):
        grads = torch.autograd.grad(mse(net(sx, weights), sy), weights)
        weights = [(w - INNER_LR * g).detach().requires_grad_(True) for w, g in zip(weights, grads)]
    with torch.no_grad():
        return (mse(net(qx, weights), qy) / sx.size(0)).item()


def main():
    gen = torch.Generator().manual_seed(4)
    params = init_params(gen)
    held_out = sample_tasks(100, gen)
    opt = torch.optim.Adam(params, lr=META_LR)
    running_total, running_last = 0.0, 0.0
    for step in range(1, META_STEPS + 1):
        total, last = meta_loss_on(params, sample_tasks(TASKS, gen))
        opt.zero_grad()
        total.backward()
        opt.step()
        running_total += total.detach()
        running_last += last.detach()
        if step % 100 == 0:
            print(
                f"meta step {step:5d}  loss {running_total.item() / 100:.5f}"
                f"  last {running_last.item() / 100:.5f}  held out {adapted_error(params, held_out):.5f}"
            )
            running_total, running_last = 0.0, 0.0


if __name__ == "__main__":
    main()
