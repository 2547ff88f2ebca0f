"""Learn a probabilistic ensemble of forward models for a 3-joint arm (PETS style).

state = joint angles + velocities (6), action = torques (3), target = change of state.
"""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PARAMS = {
    "members": 5,
    "hidden": 384,
    "layers": 3,
    "batch": 384,
    "iterations": 380,
    "lr": 1e-3,
    "episodes": 400,
    "horizon": 60,
    "seed": 17,
}


def simulate(n_episodes, horizon, rng, dt=0.05):
    """All episodes at once; simple coupled pendulum dynamics with friction."""
    q = rng.uniform(-1, 1, (n_episodes, 3))
    dq = np.zeros((n_episodes, 3))
    torque = np.zeros((n_episodes, 3))
    coupling = np.array([[1.0, 0.3, 0.1], [0.3, 1.0, 0.3], [0.1, 0.3, 1.0]])
    inputs, targets = [], []
    for _ in range(horizon):
        torque = 0.9 * torque + rng.normal(0, 0.8, torque.shape)
        acc = (torque - 2.0 * np.sin(np.cumsum(q, axis=1)) - 0.4 * dq) @ coupling
        new_dq = dq + dt * acc
        new_q = q + dt * new_dq
        inputs.append(np.concatenate([np.sin(q), np.cos(q), dq, torque], axis=1))
        noise = rng.normal(0, 0.01, (n_episodes, 6))
        targets.append(np.concatenate([new_q - q, new_dq - dq], axis=1) + noise)
        q, dq = new_q, new_dq
    return np.concatenate(inputs).astype(np.float32), np.concatenate(targets).astype(np.float32)


class EnsembleLinear(nn.Module):
    def __init__(self, members, d_in, d_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(members, d_in, d_out) / np.sqrt(d_in))
        self.bias = nn.Parameter(torch.zeros(members, 1, d_out))

    def forward(self, x):
        return torch.baddbmm(self.bias, x, self.weight)


class EnsembleDynamics(nn.Module):
    def __init__(self, d_in, d_out, p):
        super().__init__()
        sizes = [d_in] + [p["hidden"]] * p["layers"]
        self.hidden = nn.ModuleList(EnsembleLinear(p["members"], a, b) for a, b in zip(sizes, sizes[1:]))
        self.head = EnsembleLinear(p["members"], sizes[-1], 2 * d_out)
        self.register_buffer("mean", torch.zeros(d_in))
        self.register_buffer("std", torch.ones(d_in))

    def set_normaliser(self, x):
        self.mean.copy_(x.mean(0))
        self.std.copy_(x.std(0) + 1e-6)

    def forward(self, x):
        h = (x - self.mean) / self.std
        for layer in self.hidden:
            h = F.relu(layer(h))
        mean, log_var = self.head(h).chunk(2, dim=-1)
        return mean, 4.0 * torch.tanh(log_var / 4.0)


def nll(mean, log_var, target):
    return ((mean - target).square() * torch.exp(-log_var) + log_var).mean((1, 2)).sum()


@torch.no_grad()
def holdout_error(model, x, y):
    mean, _ = model(x.expand(PARAMS["members"], -1, -1))
    return (mean.mean(0) - y).square().mean().sqrt().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for key, value in PARAMS.items():
        parser.add_argument("--" + key, type=type(value), default=value)
    PARAMS.update(vars(parser.parse_args()))
    p = PARAMS

    torch.manual_seed(p["seed"])
    rng = np.random.default_rng(p["seed"])
    inputs, targets = simulate(p["episodes"], p["horizon"], rng)
    order = rng.permutation(len(inputs))
    x = torch.from_numpy(inputs[order])
    y = torch.from_numpy(targets[order]) * 10
    x_val, y_val, x, y = x[:1000], y[:1000], x[1000:], y[1000:]

    model = EnsembleDynamics(x.size(1), y.size(1), p)
    model.set_normaliser(x)
    optimizer = torch.optim.SGD(model.parameters(), lr=p["lr"], momentum=0.9)

    for it in range(p["iterations"]):
        idx = torch.randint(0, len(x), (p["members"], p["batch"]))  # own bootstrap per member
        mean, log_var = model(x[idx])
        loss = nll(mean, log_var, y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if it % 10 == 0:
            print("iter %d nll %.6f" % (it, loss.item()))
    print("holdout rmse %.5f" % holdout_error(model, x_val, y_val))


if __name__ == "__main__":
    main()
