# %% [markdown]
# Surrogate for the Lorenz flow map: (state, dt) -> next state. Exported from the notebook.

# %%
import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F

cli = argparse.ArgumentParser()
cli.add_argument("--epochs", type=int, default=4)
cli.add_argument("--steps", type=int, default=110)
cli.add_argument("--batch", type=int, default=2048)
cli.add_argument("--width", type=int, default=320)
cli.add_argument("--print-every", type=int, default=20)
cfg = cli.parse_args()

rng = np.random.default_rng(2718)


# %%
def lorenz(s, sigma=10.0, rho=28.0, beta=8 / 3):
    x, y, z = s[..., 0], s[..., 1], s[..., 2]
    return np.stack([sigma * (y - x), x * (rho - z) - y, x * y - beta * z], axis=-1)


def rk4(s, dt, sub=4):
    h = dt[..., None] / sub
    for _ in range(sub):
        k1 = lorenz(s)
        k2 = lorenz(s + h / 2 * k1)
        k3 = lorenz(s + h / 2 * k2)
        k4 = lorenz(s + h * k3)
        s = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return s


n = 60000
state = rng.normal(size=(n, 3)) * 8 + np.array([0, 0, 25])
state = rk4(state, np.full(n, 0.3), sub=40)  # get close to the attractor
dt = rng.uniform(0.02, 0.12, size=n)
target = rk4(state, dt)

mean, std = state.mean(0), state.std(0)
inputs = np.concatenate([(state - mean) / std, (dt[:, None] - 0.07) / 0.03], axis=1)
target = (target - state) / std


# %%
def as_tensor(a):
    return torch.from_numpy(np.ascontiguousarray(a))


X, Y = as_tensor(inputs), as_tensor(target)
Xval, Yval = X[-6000:], Y[-6000:]
X, Y = X[:-6000], Y[:-6000]

# numpy init so that it is the same as in the JAX version
sizes = [4, cfg.width, cfg.width, cfg.width, cfg.width, 3]
params = []
for fan_in, fan_out in zip(sizes, sizes[1:]):
    params.append(as_tensor(rng.normal(size=(fan_in, fan_out)) / np.sqrt(fan_in)))
    params.append(as_tensor(np.zeros(fan_out)))
for p in params:
    p.requires_grad_(True)


def net(x):
    for i in range(0, len(params) - 2, 2):
        x = torch.tanh(x @ params[i] + params[i + 1])
    return x @ params[-2] + params[-1]


# %%
opt = torch.optim.Adam(params, lr=1e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=max(1, cfg.epochs * cfg.steps))

for epoch in range(cfg.epochs):
    t0 = time.time()
    for step in range(1, cfg.steps + 1):
        idx = as_tensor(rng.integers(0, len(X), size=cfg.batch))
        loss = F.mse_loss(net(X[idx]), Y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % cfg.print_every == 0:
            print(f"epoch {epoch} step {step:4d} loss {loss.item():.6f}")
    with torch.no_grad():
        rmse = F.mse_loss(net(Xval), Yval).sqrt()
    print(f"epoch {epoch} val rmse {rmse.item():.6f}  ({time.time() - t0:.1f}s)")
