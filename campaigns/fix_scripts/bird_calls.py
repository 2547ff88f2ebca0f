"""Bird call classifier: packed PCM clips -> log-mel -> small CNN."""
import argparse
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SR, SECONDS, N_FFT, HOP, N_MELS, N_SPECIES = 8000, 2, 256, 80, 40, 6


def record_clip(idx, seed):
    rng = np.random.default_rng([seed, idx])
    label = int(rng.integers(N_SPECIES))
    t = np.arange(SR * SECONDS) / SR
    sweep = 500 + 350 * label + (60 + 25 * label) * np.sin(2 * np.pi * (2 + label % 3) * t + rng.uniform(0, 6))
    wave = 0.4 * np.sin(2 * np.pi * np.cumsum(sweep) / SR) + 0.8 * rng.normal(size=t.shape)
    pcm = np.clip(wave * 8000, -32000, 32000).astype(np.int16)
    return zlib.compress(np.diff(pcm, prepend=np.int16(0)).astype(np.int16).tobytes(), 6), label


def mel_bank():
    mel = np.linspace(0, 2595 * np.log10(1 + SR / 2 / 700), N_MELS + 2)
    bins = 700 * (10 ** (mel / 2595) - 1) / (SR / 2) * (N_FFT // 2)
    k = np.arange(N_FFT // 2 + 1)[None]
    up = (k - bins[:-2, None]) / (bins[1:-1] - bins[:-2])[:, None]
    down = (bins[2:, None] - k) / (bins[2:] - bins[1:-1])[:, None]
    return np.maximum(0, np.minimum(up, down)).astype(np.float32)


class CallDataset(Dataset):
    def __init__(self, n, seed, augment):
        self.clips = [record_clip(i, seed) for i in range(n)]
        self.bank, self.window = mel_bank(), np.hanning(N_FFT).astype(np.float32)
        self.augment, self.seed, self.epoch = augment, seed, 0

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, idx):
        blob, label = self.clips[idx]
        pcm = np.cumsum(np.frombuffer(zlib.decompress(blob), dtype=np.int16), dtype=np.int16)
        wave = pcm.astype(np.float32) / 32768.0
        rng = np.random.default_rng([self.seed, self.epoch, idx])
        if self.augment:
            wave = np.roll(wave, int(rng.integers(len(wave)))) * np.float32(rng.uniform(0.6, 1.4))
        frames = []
        for start in range(0, len(wave) - N_FFT, HOP):
            spec = np.abs(np.fft.rfft(wave[start:start + N_FFT] * self.window)) ** 2
            spec = np.maximum(spec - 0.5 * np.median(spec), 0.0)  # wind / hiss floor
            frames.append(np.log(self.bank @ spec.astype(np.float32) + 1e-6))
        mel = np.stack(frames, axis=1)
        mel = (mel - mel.mean()) / (mel.std() + 1e-5)
        if self.augment:  # SpecAugment, one time mask
            t0 = int(rng.integers(mel.shape[1] - 30))
            mel[:, t0:t0 + int(rng.integers(5, 30))] = 0.0
        return torch.from_numpy(mel).unsqueeze(0), label


class Trainer:
    def __init__(self, args):
        self.args = args
        self.train_set = CallDataset(640, seed=1, augment=True)
        self.train_loader = DataLoader(self.train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
        self.val_loader = DataLoader(CallDataset(160, seed=2, augment=False), batch_size=64)
        chans, layers = [1, 8, 16, 32], []
        for a, b in zip(chans, chans[1:]):
            layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)]
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, N_SPECIES))
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=args.lr)
        self.criterion = nn.CrossEntropyLoss()

    def train_epoch(self, epoch):
        self.net.train()
        self.train_set.epoch = epoch
        for step, (x, y) in enumerate(self.train_loader, 1):
            loss = self.criterion(self.net(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if step % self.args.log_every == 0:
                print(f"epoch {epoch} step {step:3d} loss {loss.item():.4f}")
            if self.args.steps and step == self.args.steps:
                break

    def validate(self):
        self.net.eval()
        with torch.no_grad():
            hits = sum((self.net(x).argmax(1) == y).sum().item() for x, y in self.val_loader)
        return hits / len(self.val_loader.dataset)

    def run(self):
        for epoch in range(self.args.epochs):
            t0 = time.perf_counter()
            self.train_epoch(epoch)
            print(f"epoch {epoch} val_acc {self.validate():.4f} time {time.perf_counter() - t0:.1f}s")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--steps", type=int, default=0)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--log-every", type=int, default=5)
    args = ap.parse_args()
    torch.manual_seed(0)
    Trainer(args).run()
