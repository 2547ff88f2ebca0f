"""Day-ahead load forecast with a hand-unrolled LSTMCell (need the cell state per hour later)."""
import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


def make_series(n_days=420, seed=3):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(n_days * 24, dtype=torch.float32)
    load = 1.0 + 0.4 * torch.sin(2 * math.pi * t / 24) + 0.2 * torch.sin(2 * math.pi * t / 168 + 0.7)
    load += 0.05 * torch.randn(len(t), generator=g)
    temp = 0.5 * torch.sin(2 * math.pi * (t - 4) / 24) + 0.1 * torch.randn(len(t), generator=g)
    return torch.stack([load - 0.3 * temp, temp], dim=1)


def make_windows(series, hist, horizon, stride=1):
    xs, ys = [], []
    for i in range(0, len(series) - hist - horizon, stride):
        xs.append(series[i:i + hist])
        ys.append(series[i + hist:i + hist + horizon, 0])
    return torch.stack(xs), torch.stack(ys)


class Forecaster(nn.Module):
    def __init__(self, n_feat=2, hidden=48, horizon=24):
        super().__init__()
        self.hidden = hidden
        self.cell = nn.LSTMCell(n_feat, hidden)
        self.gate = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, horizon)

    def forward(self, x):
        h = x.new_zeros(x.size(0), self.hidden)
        c = x.new_zeros(x.size(0), self.hidden)
        summary = 0.0
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], (h, c))
            summary = summary + torch.sigmoid(self.gate(h)) * h
        return self.out(summary / x.size(1) + h)


def train_epoch(model, opt, X, Y, args, g):
    model.train()
    running = 0.0
    perm = torch.randperm(len(X), generator=g)
    n_steps = min(args.steps or 10**9, len(X) // args.batch_size)
    for step in range(n_steps):
        idx = perm[step * args.batch_size:(step + 1) * args.batch_size]
        loss = F.mse_loss(model(X[idx]), Y[idx])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        running += loss
        if (step + 1) % args.log_every == 0:
            print(f"    step {step + 1:4d}  loss {running / (step + 1):.5f}")
    return running / n_steps


@torch.no_grad()
def validate(model, X, Y, chunk=512):
    model.eval()
    err = 0.0
    for i in range(0, len(X), chunk):
        err += (model(X[i:i + chunk]) - Y[i:i + chunk]).abs().sum().item()
    return err / Y.numel()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--steps", type=int, default=0, help="stop each epoch early (0 = full pass)")
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--hist", type=int, default=72)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--log-every", type=int, default=25)
    args = p.parse_args()

    torch.manual_seed(0)
    X, Y = make_windows(make_series(), args.hist, 24)
    cut = int(0.85 * len(X))
    model = Forecaster()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    g = torch.Generator().manual_seed(11)

    curve = []
    for epoch in range(args.epochs):
        train_loss = train_epoch(model, opt, X[:cut], Y[:cut], args, g)
        curve.append(train_loss)
        mae = validate(model, X[cut:], Y[cut:])
        print(f"epoch {epoch + 1}/{args.epochs}  train mse {train_loss:.5f}  val MAE {mae:.5f}")
    print("best epoch by train loss:", torch.stack(curve).argmin().item() + 1)


if __name__ == "__main__":
    main()
