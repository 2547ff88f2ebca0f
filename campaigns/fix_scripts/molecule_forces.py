"""Fit a neural potential to energies and forces of small Lennard-Jones clusters."""
import torch
from torch import nn

ATOMS = 8


def reference(pos):
    """Softened Lennard-Jones energy of every cluster and the matching forces."""
    pos = pos.clone().requires_grad_(True)
    i, j = torch.triu_indices(ATOMS, ATOMS, offset=1)
    d2 = (pos[:, i] - pos[:, j]).pow(2).sum(-1) + 0.3
    inv6 = d2.pow(-3)
    energy = (4 * (inv6**2 - inv6)).sum(1)
    (grad,) = torch.autograd.grad(energy.sum(), pos)
    return energy.detach(), -grad


def make_clusters(n, gen):
    side = torch.tensor([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)])
    pos = 1.15 * side.float() + 0.15 * torch.randn(n, ATOMS, 3, generator=gen)
    energy, forces = reference(pos)
    scale = forces.std()
    return pos, (energy - energy.mean()) / scale, forces / scale


class Potential(nn.Module):
    def __init__(self, n_basis=24, hidden=64):
        super().__init__()
        i, j = torch.triu_indices(ATOMS, ATOMS, offset=1)
        self.register_buffer("i", i)
        self.register_buffer("j", j)
        self.register_buffer("centers", torch.linspace(0.5, 3.0, n_basis))
        self.pair = nn.Sequential(
            nn.Linear(n_basis, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU()
        )
        self.atom = nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1))

    def energy(self, pos):
        dist = (pos[:, self.i] - pos[:, self.j]).pow(2).sum(-1).add(1e-6).sqrt()
        basis = torch.exp(-12.0 * (dist.unsqueeze(-1) - self.centers).pow(2))
        msg = self.pair(basis)
        atoms = msg.new_zeros(pos.size(0), ATOMS, msg.size(-1))
        atoms = atoms.index_add(1, self.i, msg).index_add(1, self.j, msg)
        return self.atom(atoms).sum((1, 2))

    def forward(self, pos):
        pos = pos.detach().requires_grad_(True)
        energy = self.energy(pos)
        (grad,) = torch.autograd.grad(energy.sum(), pos, create_graph=self.training)
        return energy, -grad


def loss_terms(model, pos, energy, forces):
    e, f = model(pos)
    return (e - energy).pow(2).mean(), (f - forces).pow(2).mean()


def validate(model, data, batch):
    model.eval()
    e_sum, f_sum, chunks = 0.0, 0.0, 0
    for pos, energy, forces in zip(*(d.split(batch) for d in data)):
        e_loss, f_loss = loss_terms(model, pos, energy, forces)
        e_sum += e_loss.item()
        f_sum += f_loss.item()
        chunks += 1
    model.train()
    return e_sum / chunks, f_sum / chunks


def main():
    torch.manual_seed(31)
    gen = torch.Generator().manual_seed(31)
    data = make_clusters(2400, gen)
    train = [d[:2000] for d in data]
    valid = [d[2000:] for d in data]
    model = Potential()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    batch = 50
    for epoch in range(40):
        order = torch.randperm(2000, generator=gen)
        for rows in order.split(batch):
            e_loss, f_loss = loss_terms(model, *(d[rows] for d in train))
            loss = 0.05 * e_loss + f_loss
            opt.zero_grad()
            loss.backward()
            opt.step()
        e_val, f_val = validate(model, valid, 100)
        print(
            f"epoch {epoch:2d}  train energy {e_loss.item():.6f} force {f_loss.item():.6f}"
            f"  valid energy {e_val:.6f} force {f_val:.6f}"
        )


if __name__ == "__main__":
    main()
