"""Contrastive pretraining of a 1-D encoder on vibration signals, then a linear probe."""
import torch
import torch.nn as nn
import torch.nn.functional as F

LENGTH = 128
KINDS = 4


def signals(n):
    t = torch.linspace(0, 1, LENGTH)
    kind = torch.randint(0, KINDS, (n,))
    freq = 3.0 + 4.0 * kind.float() + torch.rand(n)
    phase = 6.2832 * torch.rand(n)
    x = torch.sin(6.2832 * freq[:, None] * t + phase[:, None])
    x = x + 0.3 * torch.sin(3 * 6.2832 * freq[:, None] * t) * (kind % 2)[:, None]
    return (x + 0.4 * torch.randn(n, LENGTH)).unsqueeze(1), kind


def augment(x):
    n = x.size(0)
    gain = 0.6 + 0.8 * torch.rand(n, 1, 1)
    x = x * gain + 0.15 * torch.randn_like(x)
    shift = int(torch.randint(0, LENGTH, (1,)))
    x = torch.roll(x, shift, dims=2)
    start = torch.randint(0, LENGTH - 16, (n, 1, 1))
    pos = torch.arange(LENGTH).view(1, 1, -1)
    return x.masked_fill((pos >= start) & (pos < start + 16), 0.0)


class Encoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, 16, 9, stride=2, padding=4), nn.ReLU(),
            nn.Conv1d(16, 32, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv1d(32, dim, 3, stride=2, padding=1), nn.ReLU(),
        )

    def forward(self, x):
        return self.conv(x).mean(2)


class ContrastiveLoss(nn.Module):
    def __init__(self, temperature=0.3):
        super().__init__()
        self.t = temperature

    def forward(self, za, zb):
        z = F.normalize(torch.cat([za, zb]), dim=1)
        m, n = z.size(0), za.size(0)
        total = 0.0
        for i in range(m):
            sims = torch.mv(z, z[i]) / self.t
            others = torch.cat([sims[:i], sims[i + 1:]])
            partner = (i + n) % m
            total = total - sims[partner] + torch.logsumexp(others, dim=0)
        return total / m


def pretrain(encoder, x, steps=600, batch=48):
    head = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
    params = list(encoder.parameters()) + list(head.parameters())
    opt = torch.optim.SGD(params, lr=0.01, momentum=0.9)
    criterion = ContrastiveLoss()
    for step in range(1, steps + 1):
        b = x[torch.randint(0, len(x), (batch,))]
        za, zb = head(encoder(augment(b))), head(encoder(augment(b)))
        loss = criterion(za, zb)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 100 == 0:
            print(f"pretrain {step:4d} loss {loss.item():.4f}")


def probe(encoder, x, y, xt, yt):
    with torch.no_grad():
        f, ft = encoder(x), encoder(xt)
    clf = nn.Linear(64, KINDS)
    opt = torch.optim.LBFGS(clf.parameters(), lr=0.5, max_iter=40)

    def closure():
        opt.zero_grad()
        loss = F.cross_entropy(clf(f), y)
        loss.backward()
        return loss

    opt.step(closure)
    acc = (clf(ft).argmax(1) == yt).float().mean().item()
    print(f"linear probe accuracy {acc:.3f}")


if __name__ == "__main__":
    torch.manual_seed(99)
    train_x, train_y = signals(2000)
    test_x, test_y = signals(500)
    enc = Encoder()
    pretrain(enc, train_x)
    probe(enc, train_x[:400], train_y[:400], test_x, test_y)
