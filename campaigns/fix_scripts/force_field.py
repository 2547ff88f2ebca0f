"""
Learn an energy function E(R) of a small cluster so that both the energy and the
forces F = -dE/dR match a Lennard-Jones reference (the usual MLFF set-up).
"""
import itertools

import numpy as np
import torch
import torch.nn as nn

N_ATOMS = 9
N_TRAIN, N_VAL = 1024, 192
BATCH = 64
EPOCHS = 14
FORCE_WEIGHT = 20.0

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pairs = torch.tensor(list(itertools.combinations(range(N_ATOMS), 2)), device=device)
PAIR_I, PAIR_J = pairs[:, 0], pairs[:, 1]


def lj_reference(pos, eps=0.3, sigma=1.0):
    """Analytic Lennard-Jones energy and forces, numpy, pos (n, atoms, 3)."""
    diff = pos[:, :, None, :] - pos[:, None, :, :]
    r2 = (diff ** 2).sum(-1) + np.eye(N_ATOMS) * 1e6
    s6 = (sigma ** 2 / r2) ** 3
    energy = 0.5 * (4 * eps * (s6 ** 2 - s6)).sum((1, 2))
    coeff = 24 * eps * (2 * s6 ** 2 - s6) / r2
    forces = (coeff[..., None] * diff).sum(2)
    return energy, forces


def sample_clusters(n, seed):
    rng = np.random.default_rng(seed)
    grid = np.array(list(itertools.product(range(3), range(3), [0])), dtype=float) * 1.15
    pos = grid[None] + 0.05 * rng.standard_normal((n, N_ATOMS, 3))
    energy, forces = lj_reference(pos)
    return pos.astype(np.float32), energy.astype(np.float32), forces.astype(np.float32)


class RadialBasis(nn.Module):
    def __init__(self, n=32, r_min=0.6, r_max=4.0):
        super().__init__()
        centres = torch.linspace(r_min, r_max, n)
        self.register_buffer("centres", centres)
        self.gamma = 0.5 / (centres[1] - centres[0]).item() ** 2

    def forward(self, r):
        return torch.exp(-self.gamma * (r.unsqueeze(-1) - self.centres) ** 2)


class PairPotential(nn.Module):
    def __init__(self, n_basis=32, hidden=128):
        super().__init__()
        self.basis = RadialBasis(n_basis)
        self.mlp = nn.Sequential(
            nn.Linear(n_basis, hidden), nn.SiLU(),
            nn.Linear(hidden, hidden), nn.SiLU(),
            nn.Linear(hidden, 1),
        )
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, pos):
        r = (pos[:, PAIR_I] - pos[:, PAIR_J]).norm(dim=-1)
        return self.mlp(self.basis(r)).sum(dim=(1, 2)) + self.shift


def energy_and_forces(model, pos, training):
    pos = pos.requires_grad_(True)
    energy = model(pos)
    grad, = torch.autograd.grad(energy.sum(), pos, create_graph=training, retain_graph=True)
    return energy, -grad


def evaluate(model, loader):
    model.eval()
    e_err, f_err, n = 0.0, 0.0, 0
    for pos, energy, forces in loader:
        e, f = energy_and_forces(model, pos.clone(), training=False)
        e_err += (e.detach() - energy).abs().sum().item()
        f_err += (f - forces).abs().mean(dim=(1, 2)).sum().item()
        n += len(pos)
    return e_err / n, f_err / n


def batches(data, size, generator=None):
    n = len(data[0])
    order = torch.randperm(n, generator=generator) if generator is not None else torch.arange(n)
    return [tuple(t[i] for t in data) for i in order.split(size)]


def main():
    torch.manual_seed(21)
    gen = torch.Generator().manual_seed(22)
    train = [torch.from_numpy(a).to(device) for a in sample_clusters(N_TRAIN, 1)]
    val = [torch.from_numpy(a).to(device) for a in sample_clusters(N_VAL, 2)]
    mean_energy = train[1].mean()
    train[1], val[1] = train[1] - mean_energy, val[1] - mean_energy

    model = PairPotential().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    for epoch in range(EPOCHS):
        model.train()
        total = 0.0
        for pos, energy, forces in batches(train, BATCH, gen):
            e, f = energy_and_forces(model, pos, training=True)
            loss = (e - energy).pow(2).mean() + FORCE_WEIGHT * (f - forces).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(pos)
        e_mae, f_mae = evaluate(model, batches(val, BATCH))
        print(f"epoch {epoch + 1:2d}  loss {total / N_TRAIN:.6f}  "
              f"val energy mae {e_mae:.5f}  val force mae {f_mae:.5f}", flush=True)


if __name__ == "__main__":
    main()
