"""Small ResNet on texture patches. Plain SGD recipe."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def texture_patches(n, seed, classes=8, size=32):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=g)
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    theta = y.float() * torch.pi / classes + 0.08 * torch.randn(n, generator=g)
    freq = 0.5 + 0.3 * torch.rand(n, generator=g)
    phase = 6.28 * torch.rand(n, generator=g)
    wave = torch.cos(theta)[:, None, None] * xx + torch.sin(theta)[:, None, None] * yy
    img = torch.sin(freq[:, None, None] * wave + phase[:, None, None])
    color = torch.randn(n, 3, 1, 1, generator=g)
    return img[:, None] * color + 0.9 * torch.randn(n, 3, size, size, generator=g), y


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.short = nn.Identity()
        if stride != 1 or cin != cout:
            self.short = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.short(x))


class ResNet(nn.Module):
    def __init__(self, classes=8, widths=(24, 48, 96)):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU())
        blocks, cin = [], widths[0]
        for i, w in enumerate(widths):
            blocks += [BasicBlock(cin, w, 1 if i == 0 else 2), BasicBlock(w, w, 1)]
            cin = w
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(cin, classes)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).mean(dim=(2, 3)))


def train(model, loader, optimizer, scheduler, epoch, args):
    model.train()
    seen, loss_sum = 0, 0.0
    for step, (x, y) in enumerate(loader, 1):
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        scheduler.step()
        loss_sum += loss.item() * len(y)
        seen += len(y)
        if step % args.log_every == 0:
            print(f"  epoch {epoch} step {step}/{len(loader)} loss {loss_sum / seen:.4f}")
        if args.steps and step >= args.steps:
            break


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    correct = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    return correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.08)
    parser.add_argument("--log-every", type=int, default=5)
    args = parser.parse_args()

    torch.manual_seed(0)
    train_loader = DataLoader(TensorDataset(*texture_patches(2560, 1)), args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(TensorDataset(*texture_patches(640, 2)), 128)
    model = ResNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(train_loader))
    for epoch in range(args.epochs):
        t0 = time.time()
        train(model, train_loader, optimizer, scheduler, epoch, args)
        print(f"epoch {epoch} test acc {accuracy(model, test_loader):.4f} ({time.time() - t0:.1f}s)")


if __name__ == "__main__":
    main()
