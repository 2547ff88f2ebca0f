"""Far-field keyword spotting: 8 keywords, log-mel front end, depthwise-free small CNN."""
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SR = 16000
SECONDS = 2
N_FFT, HOP, N_MELS = 512, 160, 40
KEYWORDS = ["go", "stop", "left", "right", "up", "down", "yes", "no"]


def mel_matrix():
    def hz_to_mel(f):
        return 2595 * np.log10(1 + f / 700)

    edges = 700 * (10 ** (np.linspace(hz_to_mel(60), hz_to_mel(7600), N_MELS + 2) / 2595) - 1)
    bins = np.linspace(0, SR / 2, N_FFT // 2 + 1)
    lo, mid, hi = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    fb = np.maximum(0, np.minimum((bins - lo) / (mid - lo), (hi - bins) / (hi - mid)))
    return torch.from_numpy(fb.astype(np.float32))


def record_corpus(folder, per_keyword, seed):
    """every keyword is a pair of gliding formants; int16 files like the real corpus"""
    rng = np.random.default_rng(seed)
    t = np.arange(SR * SECONDS) / SR
    items = []
    for k, word in enumerate(KEYWORDS):
        for n in range(per_keyword):
            f1 = 250 + 90 * k + rng.normal(0, 15)
            f2 = 1200 + 230 * ((3 * k) % 8) + rng.normal(0, 40)
            glide = 1 + 0.3 * np.sin(2 * np.pi * (0.5 + 0.2 * k) * t + rng.uniform(0, 0.5))
            env = np.exp(-((t - rng.uniform(0.7, 1.3)) ** 2) / 0.08)
            wave = env * (np.sin(2 * np.pi * f1 * t * glide) + 0.6 * np.sin(2 * np.pi * f2 * t))
            path = os.path.join(folder, f"{word}_{n:03d}.npy")
            np.save(path, (wave * 9000).astype(np.int16))
            items.append((path, k))
    return items


class Room:
    """What the microphone hears: reverberation and the background of the living room."""

    def __init__(self, rt60=0.35, snr_db=(3.0, 15.0)):
        self.n = int(SR * rt60)
        self.decay = np.exp(-6.9 * np.arange(self.n) / self.n).astype(np.float32)
        self.snr_db = snr_db

    def __call__(self, wave):
        ir = np.random.standard_normal(self.n).astype(np.float32) * self.decay * 0.1
        ir[0] = 1.0
        size = 40000
        wet = np.fft.irfft(np.fft.rfft(wave, size) * np.fft.rfft(ir, size), size)[: len(wave)]
        noise = np.random.standard_normal(len(wave))
        snr = np.random.uniform(*self.snr_db)
        gain = np.sqrt(np.mean(wet ** 2) / (np.mean(noise ** 2) * 10 ** (snr / 10)))
        return (wet + gain * noise).astype(np.float32)


class KeywordDataset(Dataset):
    def __init__(self, items, room):
        self.items = items
        self.room = room
        self.window = torch.hann_window(N_FFT)
        self.mel = mel_matrix()

    def __len__(self):
        return len(self.items)

    def load(self, path):
        wave = np.load(path).astype(np.float32) / 32768
        return torch.from_numpy(self.room(wave))

    def features(self, wave):
        spec = torch.stft(wave, N_FFT, HOP, window=self.window, return_complex=True).abs().square()
        logmel = torch.log(self.mel @ spec + 1e-6)
        return (logmel - logmel.mean()) / logmel.std()

    def __getitem__(self, i):
        path, label = self.items[i]
        return self.features(self.load(path)).unsqueeze(0), label


class KWSNet(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.c1 = nn.Conv2d(1, 24, (8, 10), stride=(2, 4))
        self.c2 = nn.Conv2d(24, 32, 5, stride=(1, 2))
        self.c3 = nn.Conv2d(32, 32, 3)
        self.fc = nn.Linear(32, n_classes)

    def forward(self, x):
        x = F.relu(self.c1(x))
        x = F.relu(self.c2(x))
        x = F.relu(self.c3(x))
        return self.fc(x.mean((2, 3)))


def main():
    np.random.seed(77)
    torch.manual_seed(77)
    items = record_corpus(tempfile.mkdtemp(prefix="kws_"), per_keyword=48, seed=77)
    loader = DataLoader(KeywordDataset(items, Room()), batch_size=16, shuffle=True)
    net = KWSNet(len(KEYWORDS))
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    step = 0
    for epoch in range(9):
        for feats, labels in loader:
            loss = F.cross_entropy(net(feats), labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 6 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.6f}", flush=True)
            step += 1


if __name__ == "__main__":
    main()
