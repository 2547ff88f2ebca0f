"""PINN for the clamped Euler-Bernoulli beam  w''''(x) = q(x),  w(0)=w(1)=w'(0)=w'(1)=0

q is chosen so that w = x^2 (1-x)^2 * sin(3 pi x) is the exact solution, and the
fit is polished with L-BFGS until the relative error is ~1e-5 or so.
"""
import math

import torch
from torch import nn

torch.set_default_dtype(torch.float64)
torch.manual_seed(8)

N_COLLOC = 300
WIDTH = 40


def exact(x):
    return x**2 * (1 - x) ** 2 * torch.sin(3 * math.pi * x)


def diff(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def nth(y, x, n):
    for _ in range(n):
        y = diff(y, x)
    return y


# right hand side once, from autograd on the exact solution
x_col = torch.linspace(0, 1, N_COLLOC).reshape(-1, 1).requires_grad_(True)
q = nth(exact(x_col), x_col, 4).detach()
scale = q.abs().max()

net = nn.Sequential(
    nn.Linear(1, WIDTH), nn.Tanh(),
    nn.Linear(WIDTH, WIDTH), nn.Tanh(),
    nn.Linear(WIDTH, WIDTH), nn.Tanh(),
    nn.Linear(WIDTH, 1),
)


def w(x):
    # hard boundary conditions
    return x**2 * (1 - x) ** 2 * net(2 * x - 1)


def residual_loss():
    u = w(x_col)
    r = (nth(u, x_col, 4) - q) / scale
    return (r**2).mean()


def rel_error():
    x = torch.linspace(0, 1, 1001).reshape(-1, 1)
    with torch.no_grad():
        return ((w(x) - exact(x)).norm() / exact(x).norm()).item()


# --- phase 1: Adam -----------------------------------------------------
adam = torch.optim.Adam(net.parameters(), lr=2e-3)
for it in range(1, 151):
    adam.zero_grad()
    loss = residual_loss()
    loss.backward()
    adam.step()
    if it % 25 == 0:
        print(f"adam  {it:4d}  residual {loss.item():.6e}  rel.err {rel_error():.3e}")

# --- phase 2: L-BFGS ---------------------------------------------------
lbfgs = torch.optim.LBFGS(
    net.parameters(),
    lr=1.0,
    max_iter=5,
    history_size=50,
    tolerance_grad=1e-14,
    tolerance_change=1e-16,
    line_search_fn="strong_wolfe",
)


def closure():
    lbfgs.zero_grad()
    loss = residual_loss()
    loss.backward()
    return loss


for it in range(1, 46):
    loss = lbfgs.step(closure)
    if it % 5 == 0:
        print(f"lbfgs {it:4d}  residual {loss.item():.6e}  rel.err {rel_error():.3e}")
