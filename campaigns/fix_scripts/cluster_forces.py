"""SchNet-like potential for small clusters: energies and forces from a toy Morse PES."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)

N_ATOMS = 12
N_TYPES = 3
CUTOFF = 6.0
WIDTH = 48
FORCE_WEIGHT = 10.0


# ---------------------------------------------------------------- reference
def pair_indices(n):
    i, j = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    keep = i != j
    return i[keep], j[keep]


I, J = pair_indices(N_ATOMS)


def morse_energy(z, pos):
    depth = torch.tensor([0.6, 1.0, 1.4])
    r0 = torch.tensor([1.3, 1.6, 1.9])
    dist = (pos[:, I] - pos[:, J]).norm(dim=-1)
    d = (depth[z[:, I]] * depth[z[:, J]]).sqrt()
    r = 0.5 * (r0[z[:, I]] + r0[z[:, J]])
    return 0.5 * (d * ((1 - torch.exp(-1.2 * (dist - r))) ** 2 - 1)).sum(1)


def make_clusters(n):
    lattice = 1.7 * torch.cartesian_prod(torch.arange(3.0), torch.arange(2.0), torch.arange(2.0))
    pos = lattice + 0.18 * torch.randn(n, N_ATOMS, 3)
    z = torch.randint(0, N_TYPES, (n, N_ATOMS))
    pos.requires_grad_(True)
    energy = morse_energy(z, pos)
    forces = -torch.autograd.grad(energy.sum(), pos)[0]
    return z, pos.detach(), energy.detach(), forces


# ---------------------------------------------------------------- model
class Interaction(nn.Module):
    def __init__(self, width, n_rbf):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(n_rbf, width), nn.SiLU(), nn.Linear(width, width))
        self.lin_in = nn.Linear(width, width, bias=False)
        self.lin_out = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, h, rbf, envelope):
        w = self.filter(rbf) * envelope
        msg = self.lin_in(h)[:, J] * w
        agg = msg.view(h.size(0), N_ATOMS, N_ATOMS - 1, -1).sum(2)
        return h + self.lin_out(agg)


class Potential(nn.Module):
    def __init__(self, width=WIDTH, n_rbf=24, n_layers=2):
        super().__init__()
        self.embed = nn.Embedding(N_TYPES, width)
        self.register_buffer("centres", torch.linspace(0.5, CUTOFF, n_rbf))
        self.layers = nn.ModuleList(Interaction(width, n_rbf) for _ in range(n_layers))
        self.readout = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, z, pos):
        pos = pos.clone().requires_grad_(True)
        dist = (pos[:, I] - pos[:, J]).norm(dim=-1, keepdim=True)
        rbf = torch.exp(-8.0 * (dist - self.centres) ** 2)
        envelope = 0.5 * (torch.cos(dist * torch.pi / CUTOFF) + 1) * (dist < CUTOFF)
        h = self.embed(z)
        for layer in self.layers:
            h = layer(h, rbf, envelope)
        energy = self.readout(h).sum((1, 2))
        forces = -torch.autograd.grad(energy.sum(), pos, create_graph=self.training)[0]
        return energy, forces


def loss_terms(model, batch, e_mean, e_std):
    z, pos, e_ref, f_ref = batch
    energy, forces = model(z, pos)
    e_loss = F.mse_loss(energy, (e_ref - e_mean) / e_std)
    f_loss = F.mse_loss(forces, f_ref / e_std)
    return e_loss, f_loss


def evaluate(model, data, e_mean, e_std, batch_size=50):
    model.eval()
    e_sum, f_sum, n = 0.0, 0.0, 0
    for start in range(0, len(data[0]), batch_size):
        batch = [t[start:start + batch_size] for t in data]
        e_loss, f_loss = loss_terms(model, batch, e_mean, e_std)
        e_sum += e_loss.item()
        f_sum += f_loss.item()
        n += 1
    model.train()
    return e_sum / n, f_sum / n


train, val = make_clusters(1200), make_clusters(600)
e_mean, e_std = train[2].mean(), train[2].std()
model = Potential()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)

step = 0
while step < 260:
    for idx in torch.randperm(len(train[0])).split(24):
        e_loss, f_loss = loss_terms(model, [t[idx] for t in train], e_mean, e_std)
        loss = e_loss + FORCE_WEIGHT * f_loss
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.6f} (E {e_loss.item():.5f} F {f_loss.item():.5f})")
        if step % 20 == 19:
            print("step %d val E %.5f F %.5f" % (step, *evaluate(model, val, e_mean, e_std)))
        step += 1
        if step == 260:
            break
