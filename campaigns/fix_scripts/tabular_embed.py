"""Click prediction on made up categorical features: one big table per field, small MLP on top."""
import argparse
import time

import torch
import torch.nn as nn


class ClickNet(nn.Module):
    def __init__(self, fields=4, rows=40000, dim=32):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, dim) for _ in range(fields))
        self.mlp = nn.Sequential(nn.Linear(fields * dim, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x):
        parts = [table(x[:, i]) for i, table in enumerate(self.tables)]
        return self.mlp(torch.cat(parts, dim=1)).squeeze(1)


def make_clicks(n, fields, rows, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(0, rows, (n, fields), generator=g)
    score = torch.sin(x[:, 0] / 300.0) + 0.5 * ((x[:, 1] + x[:, 2]) % 7 > 3).float()
    return x, (score + 0.3 * torch.randn(n, generator=g) > 0.6).float()


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--lr", type=float, default=0.2)
args = parser.parse_args()

torch.manual_seed(3)
x, y = make_clicks(60000, 4, 40000, seed=1)
x_val, y_val = make_clicks(5000, 4, 40000, seed=2)
model = ClickNet()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
loss_fn = nn.BCEWithLogitsLoss()

for epoch in range(args.epochs):
    start, total = time.time(), 0.0
    order = torch.randperm(len(x))
    for step, idx in enumerate(order.split(args.batch_size)):
        loss = loss_fn(model(x[idx]), y[idx])
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step % 50 == 0:
            print(f"epoch {epoch} step {step} loss {total / (step + 1):.4f}")
    with torch.no_grad():
        acc = ((model(x_val) > 0).float() == y_val).float().mean().item()
    print(f"epoch {epoch} val acc {acc:.4f} ({time.time() - start:.1f}s)")
