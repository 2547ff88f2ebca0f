import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

# Variational autoencoder for (synthetic) infrared absorption spectra.

N_TRAIN, N_TEST, N_CHANNELS = 10240, 1024, 800
BATCH, EPOCHS, LATENT, HIDDEN = 512, 12, 12, 640
BETA = 0.5


def simulate_spectra(n, seed):
    """Mixtures of three pure substances, each a fixed set of Lorentzian lines."""
    rng = np.random.default_rng(seed)
    lines = np.random.default_rng(1234).uniform(0, 1, size=(3, 12))
    strength = np.random.default_rng(4321).uniform(0.2, 1, size=(3, 12))
    axis = np.linspace(0, 1, N_CHANNELS)
    pure = np.zeros((3, N_CHANNELS))
    for s in range(3):
        for pos, h in zip(lines[s], strength[s]):
            pure[s] += h / (1 + ((axis - pos) / 0.008) ** 2)
    pure /= pure.max()
    mix = rng.dirichlet(np.ones(3), size=n)
    spectra = mix.astype(np.float32) @ pure.astype(np.float32)
    spectra += 0.01 * rng.standard_normal(spectra.shape, dtype=np.float32)
    return torch.from_numpy(np.clip(spectra, 0, 1, out=spectra))


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(N_CHANNELS, HIDDEN), nn.ReLU(inplace=True),
            nn.Linear(HIDDEN, HIDDEN), nn.ReLU(inplace=True),
            nn.Linear(HIDDEN, 2 * LATENT),
        )
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, HIDDEN), nn.ReLU(inplace=True),
            nn.Linear(HIDDEN, HIDDEN), nn.ReLU(inplace=True),
            nn.Linear(HIDDEN, N_CHANNELS),
        )

    def forward(self, x):
        mu, logvar = self.encoder(x).chunk(2, dim=1)
        if self.training:
            z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        else:
            z = mu
        return self.decoder(z), mu, logvar


def elbo(logits, x, mu, logvar):
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
    kl = -0.5 * (1 + logvar - mu.square() - logvar.exp()).sum() / len(x)
    return rec + BETA * kl, rec, kl


def train_one_epoch(model, optimizer, data):
    model.train()
    sums = torch.zeros(3, device=data.device)
    steps = len(data) // BATCH
    for idx in torch.randperm(len(data), device=data.device).split(BATCH):
        x = data[idx]
        logits, mu, logvar = model(x)
        loss, rec, kl = elbo(logits, x, mu, logvar)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sums += torch.stack([loss.detach(), rec.detach(), kl.detach()])
    return (sums / steps).tolist()


@torch.no_grad()
def test(model, data):
    model.eval()
    total = 0.0
    for x in data.split(BATCH):
        logits, mu, logvar = model(x)
        total += elbo(logits, x, mu, logvar)[0].item() * len(x)
    return total / len(data)


if __name__ == "__main__":
    torch.manual_seed(8)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_x = simulate_spectra(N_TRAIN, seed=0).to(device)
    test_x = simulate_spectra(N_TEST, seed=1).to(device)

    model = VAE().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(1, EPOCHS + 1):
        loss, rec, kl = train_one_epoch(model, optimizer, train_x)
        print(f"epoch {epoch:2d}: loss {loss:.5f} (rec {rec:.5f}, kl {kl:.5f}) "
              f"test {test(model, test_x):.5f}", flush=True)
