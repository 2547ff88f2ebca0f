"""Linear probe / small head on top of a pretrained audio tagger, for bird calls.

The checkpoint would normally come from the big tagging model; here it is
written by make_checkpoint() so that the script runs anywhere.
"""
import argparse
import math
import os
import tempfile

import torch
from torch import nn


class ConvBlock(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        return nn.functional.avg_pool2d(x, 2)


class Tagger(nn.Module):
    def __init__(self, n_out, width=16):
        super().__init__()
        self.backbone = nn.Sequential(
            ConvBlock(1, width), ConvBlock(width, 2 * width), ConvBlock(2 * width, 4 * width)
        )
        self.head = nn.Sequential(
            nn.Linear(4 * width, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, n_out)
        )

    def forward(self, spec):
        h = self.backbone(spec)
        h = h.mean(3)
        h = h.amax(2) + h.mean(2)
        return self.head(h)


def make_checkpoint(path):
    torch.manual_seed(7)
    big = Tagger(n_out=527)
    torch.save({"backbone": big.backbone.state_dict()}, path)


def make_calls(n, n_species, gen):
    """log-spectrogram-like pictures: every species has its own sweep and rhythm"""
    f = torch.arange(64).view(1, 64, 1).float()
    t = torch.arange(96).view(1, 1, 96).float()
    y = torch.randint(0, n_species, (n,), generator=gen)
    k = y.view(-1, 1, 1).float()
    phase = torch.rand(n, 1, 1, generator=gen) * 2 * math.pi
    centre = 12 + 4.5 * k + 6 * torch.sin(2 * math.pi * t / (14 + 3 * k) + phase)
    spec = torch.exp(-((f - centre) ** 2) / 8.0)
    spec = spec + 0.3 * torch.randn(n, 64, 96, generator=gen)
    return spec.unsqueeze(1), y


def time_mask(x, gen, width=16):
    start = torch.randint(0, x.size(3) - width, (x.size(0),), generator=gen)
    cols = torch.arange(x.size(3)).view(1, -1)
    keep = (cols < start.view(-1, 1)) | (cols >= start.view(-1, 1) + width)
    return x * keep[:, None, None, :]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--species", type=int, default=10)
    ap.add_argument("--clips", type=int, default=640)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--steps", type=int, default=170)
    ap.add_argument("--lr", type=float, default=5e-3)
    ap.add_argument("--seed", type=int, default=11)
    args = ap.parse_args()

    ckpt = os.path.join(tempfile.mkdtemp(prefix="tagger_"), "tagger.pt")
    make_checkpoint(ckpt)

    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    x, y = make_calls(args.clips, args.species, gen)

    model = Tagger(args.species)
    model.backbone.load_state_dict(torch.load(ckpt)["backbone"])
    model.train()
    model.backbone.eval()  # keep the pretrained statistics

    # only the head is trained
    optimizer = torch.optim.Adam(model.head.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()

    for step in range(args.steps):
        idx = torch.randint(0, args.clips, (args.batch,), generator=gen)
        batch = time_mask(x[idx], gen)
        loss = criterion(model(batch), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"[{step:4d}] loss={loss.item():.6f}")


if __name__ == "__main__":
    main()
