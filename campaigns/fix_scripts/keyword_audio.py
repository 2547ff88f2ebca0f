"""Keyword spotting on synthetic chirps: log-mel front end + small GRU."""
import math
import random

import torch
from torch import nn

SR = 4000
N = 2800
N_FFT = 256
HOP = 100
N_MELS = 32
WORDS = 6


def set_seed(s):
    random.seed(s)
    torch.manual_seed(s)


def make_clips(n):
    t = torch.arange(SR).float() / SR
    word = torch.randint(0, WORDS, (n,))
    f0 = 300.0 + 120.0 * word.float() + 40.0 * torch.randn(n)
    slope = torch.where(word % 2 == 0, 1.0, -1.0) * (150.0 + 60 * torch.rand(n))
    inst = f0[:, None] * t + 0.5 * slope[:, None] * t * t
    env = torch.exp(-((t - 0.5) ** 2) / 0.06)
    return torch.sin(2 * math.pi * inst) * env, word


def mel_filters():
    hz = torch.linspace(0, SR / 2, N_FFT // 2 + 1)
    top = 2595 * math.log10(1 + SR / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, N_MELS + 2) / 2595) - 1)
    lo, mid, hi = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    return torch.minimum((hz - lo) / (mid - lo), (hi - hz) / (hi - mid)).clamp(min=0)


class LogMel(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(N_FFT))
        self.register_buffer("fb", mel_filters())

    @torch.no_grad()
    def forward(self, wav):
        spec = torch.stft(wav, N_FFT, HOP, window=self.window, return_complex=True)
        power = spec.real ** 2 + spec.imag ** 2
        return torch.log(self.fb @ power + 1e-4)


def perturb(wav, noise=0.2):
    b = wav.size(0)
    start = torch.randint(0, SR - N + 1, (b, 1))
    wav = wav.gather(1, start + torch.arange(N))
    gain = 0.5 + torch.rand(b, 1)
    return gain * wav + noise * torch.randn(b, N)


class Spotter(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.norm = nn.LayerNorm(N_MELS)
        self.rnn = nn.GRU(N_MELS, hidden, num_layers=2, batch_first=True)
        self.fc = nn.Linear(hidden, WORDS)

    def forward(self, mel):
        out, _ = self.rnn(self.norm(mel.transpose(1, 2)))
        return self.fc(out.mean(1))


class Experiment:
    def __init__(self, seed):
        set_seed(seed)
        self.train_wav, self.train_y = make_clips(1600)
        self.test_wav, self.test_y = make_clips(320)
        self.front = LogMel()
        self.model = Spotter()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.crit = nn.CrossEntropyLoss(label_smoothing=0.05)

    def epoch(self, bs=32):
        self.model.train()
        order = torch.randperm(len(self.train_wav))
        total = 0.0
        for chunk in order.split(bs):
            wav, y = self.train_wav[chunk], self.train_y[chunk]
            mel = self.front(perturb(wav))
            loss = self.crit(self.model(mel), y)
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            total += loss.item() * len(y)
        return total / len(order)

    @torch.no_grad()
    def test(self):
        self.model.eval()
        mid = (SR - N) // 2
        mel = self.front(self.test_wav[:, mid:mid + N])
        return (self.model(mel).argmax(1) == self.test_y).float().mean().item()


if __name__ == "__main__":
    exp = Experiment(1234)
    for e in range(16):
        tr = exp.epoch()
        if e % 4 == 3:
            print(f"epoch {e + 1}: loss {tr:.4f}  test acc {exp.test():.3f}")
