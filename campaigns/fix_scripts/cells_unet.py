# Small U-Net that segments synthetic "cells" (bright ellipses on a noisy background)
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = 11
SIZE = 48
EPOCHS = 6
BATCH = 16
N_TRAIN, N_VAL = 480, 256


def draw(n, g):
    yy, xx = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    masks = torch.zeros(n, SIZE, SIZE)
    for _ in range(4):
        cx, cy = torch.randint(6, SIZE - 6, (2, n, 1, 1), generator=g)
        rx, ry = 3 + 5 * torch.rand(2, n, 1, 1, generator=g)
        inside = ((xx - cx) / rx) ** 2 + ((yy - cy) / ry) ** 2 < 1
        masks = torch.maximum(masks, inside.float())
    imgs = 0.6 * masks + 0.4 * torch.randn(n, SIZE, SIZE, generator=g)
    return imgs.unsqueeze(1), masks.unsqueeze(1)


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.d1 = double_conv(1, w)
        self.d2 = double_conv(w, 2 * w)
        self.mid = double_conv(2 * w, 4 * w)
        self.pool = nn.MaxPool2d(2)
        self.up2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, stride=2)
        self.u2 = double_conv(4 * w, 2 * w)
        self.up1 = nn.ConvTranspose2d(2 * w, w, 2, stride=2)
        self.u1 = double_conv(2 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(self.pool(a))
        c = self.mid(self.pool(b))
        b = self.u2(torch.cat([self.up2(c), b], 1))
        a = self.u1(torch.cat([self.up1(b), a], 1))
        return self.out(a)


def dice_loss(logits, y, eps=1.0):
    p = torch.sigmoid(logits)
    inter = (p * y).sum((1, 2, 3))
    return (1 - (2 * inter + eps) / (p.sum((1, 2, 3)) + y.sum((1, 2, 3)) + eps)).mean()


def criterion(logits, y):
    return nn.functional.binary_cross_entropy_with_logits(logits, y) + dice_loss(logits, y)


def train_one_epoch(model, loader, optimizer):
    model.train()
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def validate(model, loader):
    model.eval()
    outputs, targets = [], []
    for x, y in loader:
        outputs.append(model(x))
        targets.append(y)
    outputs, targets = torch.cat(outputs), torch.cat(targets)
    loss = criterion(outputs, targets)
    pred = outputs > 0
    truth = targets > 0.5
    iou = (pred & truth).sum() / (pred | truth).sum()
    return loss.item(), iou.item()


if __name__ == "__main__":
    torch.manual_seed(SEED)
    g = torch.Generator().manual_seed(SEED)
    train_set = TensorDataset(*draw(N_TRAIN, g))
    val_set = TensorDataset(*draw(N_VAL, g))
    train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True, generator=g)
    val_loader = DataLoader(val_set, batch_size=32)

    net = UNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        tr = train_one_epoch(net, train_loader, optimizer)
        va, iou = validate(net, val_loader)
        print("epoch %d  train %.6f  val %.6f  iou %.4f" % (epoch, tr, va, iou))
