"""Next word model with a large vocabulary; accuracy over the validation text after every epoch."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB = 12000


class NextWord(nn.Module):
    def __init__(self, dim=64, context=4):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.hidden = nn.Linear(dim * context, 128)
        self.out = nn.Linear(128, VOCAB)

    def forward(self, x):
        return self.out(torch.tanh(self.hidden(self.embed(x).flatten(1))))


def make_text(n, seed):
    g = torch.Generator().manual_seed(seed)
    words = torch.randint(0, VOCAB, (n,), generator=g) ** 2 // VOCAB
    words[4::5] = (words[3::5][: len(words[4::5])] * 7 + 1) % VOCAB
    return words


def windows(words, context=4):
    x = words.unfold(0, context, 1)[:-1]
    return x, words[context:]


def accuracy(model, x, y, batch_size=250):
    model.eval()
    scores = []
    with torch.no_grad():
        for i in range(0, len(x), batch_size):
            scores.append(model(x[i:i + batch_size]))
    guesses = torch.cat(scores).argmax(1)
    model.train()
    return (guesses == y).float().mean().item()


def main():
    torch.manual_seed(4)
    x, y = windows(make_text(6000, 1))
    x_val, y_val = windows(make_text(5000, 2))
    model = NextWord()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(8):
        start = time.time()
        for idx in torch.randperm(len(x)).split(128):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f} val acc {accuracy(model, x_val, y_val):.4f} ({time.time() - start:.1f}s)")


if __name__ == "__main__":
    main()
