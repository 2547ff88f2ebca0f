"""2x super resolution with a feature ("perceptual") loss, CPU toy version.

Following Johnson et al. 2016: the loss network is fixed, the generator is
trained through it.  There is no VGG here, so the loss network is a small CNN
with fixed random orthogonal filters, which works surprisingly well.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--iters", type=int, default=110)
parser.add_argument("--bs", type=int, default=16)
parser.add_argument("--hr", type=int, default=64)
parser.add_argument("--lambda_feat", type=float, default=1.0)
parser.add_argument("--lambda_pix", type=float, default=0.1)
opt = parser.parse_args()

torch.manual_seed(2016)


class LossNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(3, 24, 3, padding=1)
        self.c2 = nn.Conv2d(24, 48, 3, padding=1)
        self.c3 = nn.Conv2d(48, 64, 3, padding=1)
        for m in (self.c1, self.c2, self.c3):
            nn.init.orthogonal_(m.weight, gain=1.4)
            nn.init.zeros_(m.bias)

    def forward(self, x):
        f1 = F.relu(self.c1(x))
        f2 = F.relu(self.c2(F.avg_pool2d(f1, 2)))
        f3 = F.relu(self.c3(F.avg_pool2d(f2, 2)))
        return f1, f2, f3


class Generator(nn.Module):
    def __init__(self, ch=32, n_blocks=3):
        super().__init__()
        self.head = nn.Conv2d(3, ch, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(ch, ch, 3, padding=1), nn.PReLU(), nn.Conv2d(ch, ch, 3, padding=1))
            for _ in range(n_blocks)
        )
        self.tail = nn.Sequential(nn.Conv2d(ch, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, lr):
        x = self.head(lr)
        for b in self.blocks:
            x = x + 0.2 * b(x)
        up = F.interpolate(lr, scale_factor=2, mode="bilinear", align_corners=False)
        return up + self.tail(x)


def textures(n, size):
    """Piecewise flat images with some stripes, values in [0, 1]."""
    coarse = torch.rand(n, 3, 8, 8)
    img = F.interpolate(coarse, size=size, mode="nearest")
    r = torch.arange(size).float()
    f = torch.rand(n, 1, 1, 1) * 1.5 + 0.3
    a = torch.rand(n, 1, 1, 1) * 3.1416
    stripes = torch.sin(f * (a.cos() * r.view(1, 1, 1, -1) + a.sin() * r.view(1, 1, -1, 1)))
    return (img + 0.25 * stripes).clamp(0, 1)


loss_net = LossNetwork().eval()
for p in loss_net.parameters():
    p.requires_grad_(False)

G = Generator()
optimizer = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.9, 0.99))

for it in range(1, opt.iters + 1):
    hr = textures(opt.bs, opt.hr)
    lr = F.avg_pool2d(hr, 2)

    sr = G(lr)
    feats_sr = loss_net(sr)
    with torch.no_grad():
        feats_hr = loss_net(hr)

    feat_loss = sum(F.mse_loss(a, b) for a, b in zip(feats_sr, feats_hr))
    pix_loss = F.l1_loss(sr, hr)
    loss = opt.lambda_feat * feat_loss + opt.lambda_pix * pix_loss

    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    if it % 10 == 0:
        psnr = -10 * torch.log10(F.mse_loss(sr.detach().clamp(0, 1), hr))
        print(f"iter {it:3d}: feat {feat_loss.item():.5f} pix {pix_loss.item():.5f} psnr {psnr.item():.2f}")
