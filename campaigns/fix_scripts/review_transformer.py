import math
import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

MAX_LEN = 128
PAD = 0
POS_WORDS = ["great", "lovely", "perfect", "love", "works", "happy", "solid", "fast"]
NEG_WORDS = ["broken", "awful", "slow", "refund", "cheap", "hate", "noisy", "useless"]
FILLER = ["the", "a", "it", "product", "box", "i", "was", "is", "very", "and", "for", "my", "bought", "week", "color",
          "after", "delivery", "came", "one", "day", "phone", "cable", "in", "this", "to", "of", "price", "kitchen"]


def make_reviews(n, rng):
    rows = []
    for _ in range(n):
        length = max(4, min(70, int(rng.lognormvariate(2.9, 0.45))))
        label = rng.randint(0, 1)
        strong, weak = (POS_WORDS, NEG_WORDS) if label else (NEG_WORDS, POS_WORDS)
        words = []
        for _ in range(length):
            u = rng.random()
            if u < 0.10:
                words.append(rng.choice(strong))
            elif u < 0.15:
                words.append(rng.choice(weak))
            else:
                words.append(rng.choice(FILLER))
        rows.append((" ".join(words), label))
    return rows


class Vocab:
    def __init__(self, texts):
        self.stoi = {"<pad>": PAD, "<unk>": 1}
        for t in texts:
            for w in t.split():
                self.stoi.setdefault(w, len(self.stoi))

    def __len__(self):
        return len(self.stoi)

    def encode(self, text):
        return [self.stoi.get(w, 1) for w in text.split()]


class Collator:
    def __init__(self, vocab):
        self.vocab = vocab

    def __call__(self, rows):
        ids = torch.full((len(rows), MAX_LEN), PAD, dtype=torch.long)
        for i, (toks, _) in enumerate(rows):
            toks = toks[:MAX_LEN]
            ids[i, :len(toks)] = torch.tensor(toks)
        labels = torch.tensor([float(lab) for _, lab in rows])
        return ids, labels


class ReviewEncoder(nn.Module):
    def __init__(self, n_words, dim=64, heads=4, layers=2):
        super().__init__()
        self.tok = nn.Embedding(n_words, dim, padding_idx=PAD)
        pe = torch.zeros(MAX_LEN, dim)
        pos = torch.arange(MAX_LEN).unsqueeze(1).float()
        div = torch.exp(torch.arange(0, dim, 2).float() * (-math.log(10000.0) / dim))
        pe[:, 0::2], pe[:, 1::2] = torch.sin(pos * div), torch.cos(pos * div)
        self.register_buffer("pe", pe)
        layer = nn.TransformerEncoderLayer(dim, heads, dim_feedforward=128, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(dim, 1)

    def forward(self, ids):
        pad = ids.eq(PAD)
        h = self.tok(ids) * 8.0 + self.pe[:ids.size(1)]
        h = self.encoder(h, src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(-1).float()
        pooled = (h * keep).sum(1) / keep.sum(1)
        return self.out(pooled).squeeze(-1)


def evaluate(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for ids, y in loader:
            right += ((model(ids) > 0).float() == y).sum().item()
            total += len(y)
    model.train()
    return right / total


def main():
    torch.manual_seed(11)
    rng = random.Random(11)
    train, valid = make_reviews(1200, rng), make_reviews(300, rng)
    vocab = Vocab([t for t, _ in train])
    train = [(vocab.encode(t), lab) for t, lab in train]
    valid = [(vocab.encode(t), lab) for t, lab in valid]
    collate = Collator(vocab)
    train_dl = DataLoader(train, batch_size=12, shuffle=True, collate_fn=collate)
    valid_dl = DataLoader(valid, batch_size=100, collate_fn=collate)

    model = ReviewEncoder(len(vocab))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    crit = nn.BCEWithLogitsLoss()
    for epoch in range(4):
        total = 0.0
        for ids, y in train_dl:
            loss = crit(model(ids), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(train_dl):.4f}, valid acc {evaluate(model, valid_dl):.3f}")


if __name__ == "__main__":
    main()
