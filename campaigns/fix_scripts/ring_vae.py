"""VAE on rings, one checkpoint per epoch, losses kept as floats for the plot."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def rings(n, seed, size=28):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    centre = 0.4 * (torch.rand(n, 2, generator=g) - 0.5)
    radius = 0.3 + 0.5 * torch.rand(n, 1, 1, generator=g)
    distance = ((xx - centre[:, :1, None]) ** 2 + (yy - centre[:, 1:, None]) ** 2).sqrt()
    return torch.exp(-((distance - radius) ** 2) / 0.01).flatten(1)


class VAE(nn.Module):
    def __init__(self, size=784, hidden=400, latent=8):
        super().__init__()
        self.enc = nn.Linear(size, hidden)
        self.mu, self.logvar = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.dec1, self.dec2 = nn.Linear(latent, hidden), nn.Linear(hidden, size)

    def forward(self, x):
        h = F.relu(self.enc(x))
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.dec2(F.relu(self.dec1(z))), mu, logvar


def elbo(logits, x, mu, logvar):
    kl = -0.5 * (1 + logvar - mu ** 2 - logvar.exp()).sum()
    return (F.binary_cross_entropy_with_logits(logits, x, reduction="sum") + kl) / len(x)


torch.manual_seed(0)
loader = DataLoader(TensorDataset(rings(12000, 1)), batch_size=128, shuffle=True)
held_out = rings(1000, 2)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.5)
curve = []
for epoch in range(12):
    for (x,) in loader:
        logits, mu, logvar = model(x)
        loss = elbo(logits, x, mu, logvar)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        curve.append(loss.item())
    scheduler.step()
    model.eval()
    with torch.no_grad():
        out = model(held_out)
        val = elbo(out[0], held_out, out[1], out[2]).item()
    model.train()
    torch.save({"model": model.state_dict(), "epoch": epoch}, "ring_vae.pt")
    print(f"epoch {epoch} train {sum(curve[-len(loader):]) / len(loader):.3f} val {val:.3f}")
