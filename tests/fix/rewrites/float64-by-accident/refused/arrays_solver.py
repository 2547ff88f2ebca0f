# float64 0.9 -> refused: may be meant
import numpy as np
import torch

rng = np.random.default_rng(0)
xs, ys = rng.normal(size=(512, 64)), rng.normal(size=(512, 1))


def solver_input(values):
    return torch.from_numpy(values)


x, y = solver_input(xs), solver_input(ys)
first, second = solver_input(rng.normal(size=(64, 32))), solver_input(rng.normal(size=(32, 1)))
for weight in (first, second):
    weight.requires_grad_(True)
optimizer = torch.optim.SGD([first, second], lr=1e-4)
for step in range(50):
    rows = solver_input(rng.integers(0, 512, size=64))
    loss = ((torch.tanh(x[rows] @ first) @ second - y[rows]) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
