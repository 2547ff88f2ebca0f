"""Sentiment-like classification of short token sequences with a two-layer Transformer."""
import math
import random
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

PAD = 0


@dataclass
class Config:
    vocab: int = 1500
    d_model: int = 64
    heads: int = 4
    layers: int = 2
    classes: int = 3
    docs: int = 2000
    batch_size: int = 16
    epochs: int = 2
    lr: float = 3e-4
    seed: int = 21


def generate_docs(cfg):
    """Most reviews are a sentence or two, a few of them ramble on."""
    rng = random.Random(cfg.seed)
    docs = []
    for _ in range(cfg.docs):
        label = rng.randrange(cfg.classes)
        length = min(200, max(5, int(rng.lognormvariate(3.0, 0.6))))
        tokens = []
        for _ in range(length):
            if rng.random() < 0.25:
                tokens.append(1 + label * 100 + rng.randrange(100))
            else:
                tokens.append(rng.randrange(301, cfg.vocab))
        docs.append((tokens, label))
    return docs


class ReviewDataset(Dataset):
    def __init__(self, docs):
        self.labels = torch.tensor([label for _, label in docs])
        self.lengths = torch.tensor([len(tokens) for tokens, _ in docs])
        self.max_len = int(self.lengths.max())
        self.ids = torch.full((len(docs), self.max_len), PAD, dtype=torch.long)
        for row, (tokens, _) in enumerate(docs):
            self.ids[row, : len(tokens)] = torch.tensor(tokens)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.ids[i], self.lengths[i], self.labels[i]


class Classifier(nn.Module):
    def __init__(self, cfg, max_len):
        super().__init__()
        self.tok = nn.Embedding(cfg.vocab, cfg.d_model, padding_idx=PAD)
        self.pos = nn.Parameter(0.02 * torch.randn(max_len, cfg.d_model))
        layer = nn.TransformerEncoderLayer(
            cfg.d_model, cfg.heads, 4 * cfg.d_model, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(cfg.d_model)
        self.fc = nn.Linear(cfg.d_model, cfg.classes)
        self.scale = math.sqrt(cfg.d_model)

    def forward(self, ids):
        pad = ids == PAD
        h = self.tok(ids) * self.scale + self.pos[: ids.size(1)]
        h = self.norm(self.encoder(h, src_key_padding_mask=pad))
        keep = (~pad).unsqueeze(-1).float()
        return self.fc((h * keep).sum(1) / keep.sum(1))


def run(cfg):
    torch.manual_seed(cfg.seed)
    data = ReviewDataset(generate_docs(cfg))
    loader = DataLoader(
        data, cfg.batch_size, shuffle=True, generator=torch.Generator().manual_seed(cfg.seed)
    )
    model = Classifier(cfg, data.max_len)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    loss_fn = nn.CrossEntropyLoss()
    step, seen_tokens = 0, 0
    for epoch in range(cfg.epochs):
        for ids, lengths, labels in loader:
            logits = model(ids)
            loss = loss_fn(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            seen_tokens += int(lengths.sum())
            step += 1
            if step % 25 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.5f} tokens {seen_tokens}")


if __name__ == "__main__":
    run(Config())
