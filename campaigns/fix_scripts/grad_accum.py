"""Character names with an LSTM; gradients are accumulated over four small batches."""
import random

import torch
from torch import nn

SYLLABLES = ["ka", "lo", "mi", "ren", "dor", "sha", "vel", "ti", "ga", "nu", "wyn", "ash"]
ACCUM = 4


def names(n, seed):
    rng = random.Random(seed)
    return ["".join(rng.choice(SYLLABLES) for _ in range(rng.randint(6, 9))).ljust(24, ".")[:24] for _ in range(n)]


class NameModel(nn.Module):
    def __init__(self, letters, hidden=160):
        super().__init__()
        self.embed = nn.Embedding(letters, 32)
        self.lstm = nn.LSTM(32, hidden, num_layers=2, batch_first=True)
        self.out = nn.Linear(hidden, letters)

    def forward(self, x):
        h, _ = self.lstm(self.embed(x))
        return self.out(h)


def evaluate(model, data, criterion):
    model.eval()
    with torch.no_grad():
        loss = criterion(model(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten()).item()
    model.train()
    return loss


def main():
    torch.manual_seed(1)
    text = names(4200, seed=7)
    letters = sorted(set("".join(text)))
    ids = torch.tensor([[letters.index(c) for c in name] for name in text])
    train, val = ids[:4000], ids[4000:]
    model = NameModel(len(letters))
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(4):
        running, updates = 0.0, 0
        opt.zero_grad()
        for i, idx in enumerate(torch.randperm(len(train)).split(16), 1):
            batch = train[idx]
            loss = criterion(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()) / ACCUM
            loss.backward()
            running += loss.item()
            if i % ACCUM == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                opt.zero_grad()
                updates += 1
        print(f"epoch {epoch} loss {running / updates:.4f} val {evaluate(model, val, criterion):.4f}")


if __name__ == "__main__":
    main()
