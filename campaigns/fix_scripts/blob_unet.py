"""Tiny U-Net on synthetic blobs, with a mini "lightning" so that I do not need the dependency."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def make_blobs(n, size=96, seed=0):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    mask = torch.zeros(n, size, size)
    for _ in range(4):
        cy, cx = torch.rand(2, n, 1, 1, generator=g) * size
        rad = 5 + 10 * torch.rand(n, 1, 1, generator=g)
        mask = torch.maximum(mask, (((yy - cy) ** 2 + (xx - cx) ** 2) < rad ** 2).float())
    img = 0.8 * mask + 0.5 * torch.randn(n, size, size, generator=g)
    return img.unsqueeze(1), mask.unsqueeze(1)


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(),
    )


class SegModule(nn.Module):
    def __init__(self, base=12, lr=1e-2):
        super().__init__()
        self.lr = lr
        self.enc1, self.enc2 = block(1, base), block(base, 2 * base)
        self.mid = block(2 * base, 4 * base)
        self.dec2, self.dec1 = block(6 * base, 2 * base), block(3 * base, base)
        self.head = nn.Conv2d(base, 1, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.dec2(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1))
        a = self.dec1(torch.cat([F.interpolate(b, scale_factor=2.0), a], 1))
        return self.head(a)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        prob = logits.sigmoid()
        dice = 1 - (2 * (prob * y).sum() + 1) / (prob.sum() + y.sum() + 1)
        return F.binary_cross_entropy_with_logits(logits, y) + dice

    def validation_step(self, batch, batch_idx):
        x, y = batch
        pred = self(x) > 0
        return (pred & (y > 0.5)).sum().item(), (pred | (y > 0.5)).sum().item()

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.lr)
        return opt, torch.optim.lr_scheduler.StepLR(opt, step_size=2, gamma=0.5)


class MiniTrainer:
    def __init__(self, max_epochs, limit_train_batches=None, log_every_n_steps=5):
        self.max_epochs = max_epochs
        self.limit = limit_train_batches
        self.log_every = log_every_n_steps
        self.global_step = 0

    def fit(self, module, train_dl, val_dl):
        opt, sched = module.configure_optimizers()
        for epoch in range(self.max_epochs):
            module.train()
            for i, batch in enumerate(train_dl):
                if self.limit and i >= self.limit:
                    break
                loss = module.training_step(batch, i)
                opt.zero_grad()
                loss.backward(retain_graph=True)
                opt.step()
                self.global_step += 1
                if self.global_step % self.log_every == 0:
                    print(f"epoch={epoch} step={self.global_step} train_loss={loss.item():.4f}")
            sched.step()
            print(f"epoch={epoch} val_iou={self.validate(module, val_dl):.4f}")

    @torch.no_grad()
    def validate(self, module, val_dl):
        module.eval()
        inter, union = 0, 0
        for i, batch in enumerate(val_dl):
            a, b = module.validation_step(batch, i)
            inter, union = inter + a, union + b
        return inter / max(union, 1)


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--epochs", type=int, default=3)
    cli.add_argument("--steps", type=int, default=None)
    cli.add_argument("--batch-size", type=int, default=48)
    opts = cli.parse_args()
    torch.manual_seed(7)
    train_dl = DataLoader(TensorDataset(*make_blobs(768, seed=1)), batch_size=opts.batch_size, shuffle=True)
    val_dl = DataLoader(TensorDataset(*make_blobs(96, seed=2)), batch_size=16)
    MiniTrainer(opts.epochs, limit_train_batches=opts.steps).fit(SegModule(), train_dl, val_dl)
