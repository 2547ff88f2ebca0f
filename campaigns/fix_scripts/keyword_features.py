"""Keyword spotting on synthetic chirps: log-mel features and a small CNN."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SR = 16000
N_FFT = 512
HOP = 80
N_MELS = 40
N_CLASSES = 8


def synth_clips(n, seconds, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(int(SR * seconds)) / SR
    labels = rng.integers(0, N_CLASSES, n)
    waves = np.empty((n, t.size), dtype=np.float32)
    for i, k in enumerate(labels):
        f0 = 200 + 150 * k + rng.normal(0, 20)
        slope = (-1) ** k * (100 + 40 * k)
        tone = np.sin(2 * np.pi * (f0 * t + 0.5 * slope * t**2))
        envelope = np.exp(-3 * np.abs(t - rng.uniform(0.3, 0.7) * seconds))
        waves[i] = envelope * tone + 0.3 * rng.standard_normal(t.size)
    return torch.from_numpy(waves), torch.from_numpy(labels)


def mel_filterbank():
    def to_hz(m):
        return 700 * (10 ** (m / 2595) - 1)

    mels = np.linspace(0, 2595 * np.log10(1 + SR / 2 / 700), N_MELS + 2)
    hz = to_hz(mels)
    freqs = np.linspace(0, SR / 2, N_FFT // 2 + 1)
    up = (freqs[None] - hz[:-2, None]) / (hz[1:-1] - hz[:-2])[:, None]
    down = (hz[2:, None] - freqs[None]) / (hz[2:] - hz[1:-1])[:, None]
    return torch.from_numpy(np.maximum(0, np.minimum(up, down)).astype(np.float32))


class KeywordDataset(Dataset):
    def __init__(self, waves, labels):
        self.labels = labels
        self.window = torch.hann_window(N_FFT)
        self.fbank = mel_filterbank()
        self.waves = waves

    def features(self, wave):
        wave = wave - wave.mean()
        wave = torch.cat([wave[:1], wave[1:] - 0.97 * wave[:-1]])
        spec = torch.stft(wave, N_FFT, HOP, window=self.window, return_complex=True).abs() ** 2
        logmel = torch.log(self.fbank @ spec + 1e-6)
        logmel = (logmel - logmel.mean()) / logmel.std()
        return F.avg_pool1d(logmel, 4)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.features(self.waves[i]), self.labels[i]


class KeywordNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.fc = nn.Linear(2 * width, N_CLASSES)

    def forward(self, x):
        x = F.relu(self.conv1(x.unsqueeze(1)))
        x = F.relu(self.conv2(x))
        return self.fc(x.mean((2, 3)))


def train():
    torch.manual_seed(5)
    waves, labels = synth_clips(480, 1.5, seed=5)
    train_set = KeywordDataset(waves, labels)
    loader = DataLoader(
        train_set, batch_size=24, shuffle=True, generator=torch.Generator().manual_seed(5)
    )
    net = KeywordNet()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=24)
    for epoch in range(24):
        total, correct = 0.0, 0
        for x, y in loader:
            out = net(x)
            loss = F.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(y)
            correct += (out.argmax(1) == y).sum().item()
        sched.step()
        n = len(train_set)
        print(f"epoch {epoch:2d} loss {total / n:.6f} acc {correct / n:.3f}")


train()
