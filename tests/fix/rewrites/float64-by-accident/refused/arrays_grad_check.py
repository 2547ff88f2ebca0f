# float64 0.9 -> refused: may be meant
import numpy as np
import torch

rng = np.random.default_rng(0)
xs, ys = rng.normal(size=(512, 64)), rng.normal(size=(512, 1))


def tensor_of(values):
    return torch.from_numpy(values)


x, y = tensor_of(xs), tensor_of(ys)
first, second = tensor_of(rng.normal(size=(64, 32))), tensor_of(rng.normal(size=(32, 1)))
for weight in (first, second):
    weight.requires_grad_(True)
optimizer = torch.optim.SGD([first, second], lr=1e-4)
for step in range(50):
    rows = tensor_of(rng.integers(0, 512, size=64))
    loss = ((torch.tanh(x[rows] @ first) @ second - y[rows]) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.autograd.gradcheck(torch.tanh, (first,))
