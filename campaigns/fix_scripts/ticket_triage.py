"""Route customer tickets to one of 5 queues with a small transformer encoder."""
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

MAX_LEN = 256
D_MODEL = 64
N_HEADS = 4
N_LAYERS = 2
BATCH_SIZE = 16
EPOCHS = 4
QUEUES = ["billing", "login", "delivery", "refund", "other"]
PAD, UNK, CLS = 0, 1, 2

random.seed(99)
np.random.seed(99)
torch.manual_seed(99)

TOPIC_WORDS = {q: [f"{q}{i}" for i in range(40)] for q in QUEUES}
COMMON = [f"word{i}" for i in range(1500)]


def write_ticket(queue):
    # most tickets are a few lines, some customers write novels
    n = int(np.clip(np.random.lognormal(3.3, 0.5), 6, MAX_LEN - 1))
    words = []
    for _ in range(n):
        pool = TOPIC_WORDS[queue] if random.random() < 0.25 else COMMON
        words.append(random.choice(pool))
    return " ".join(words)


class Vocabulary:
    def __init__(self, texts):
        words = sorted({w for t in texts for w in t.split()})
        self.index = {w: i + 3 for i, w in enumerate(words)}

    def __len__(self):
        return len(self.index) + 3

    def encode(self, text):
        ids = [CLS] + [self.index.get(w, UNK) for w in text.split()]
        ids = ids[:MAX_LEN]
        return ids + [PAD] * (MAX_LEN - len(ids))


class TicketDataset(Dataset):
    def __init__(self, texts, labels, vocab):
        self.ids = [torch.tensor(vocab.encode(t)) for t in texts]
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.ids[i], self.labels[i]


def collate(batch):
    ids = torch.stack([b[0] for b in batch])
    labels = torch.tensor([b[1] for b in batch])
    return ids, labels


class TicketClassifier(nn.Module):
    def __init__(self, vocab_size, n_classes):
        super().__init__()
        self.tok = nn.Embedding(vocab_size, D_MODEL, padding_idx=PAD)
        self.pos = nn.Parameter(torch.randn(MAX_LEN, D_MODEL) * 0.02)
        layer = nn.TransformerEncoderLayer(
            D_MODEL, N_HEADS, dim_feedforward=4 * D_MODEL, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, N_LAYERS, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(D_MODEL)
        self.head = nn.Linear(D_MODEL, n_classes)

    def forward(self, ids):
        mask = ids == PAD
        h = self.tok(ids) + self.pos[: ids.size(1)]
        h = self.encoder(h, src_key_padding_mask=mask)
        keep = (~mask).unsqueeze(-1).float()
        pooled = (self.norm(h) * keep).sum(1) / keep.sum(1)
        return self.head(pooled)


def main():
    labels = [i % len(QUEUES) for i in range(800)]
    texts = [write_ticket(QUEUES[y]) for y in labels]
    vocab = Vocabulary(texts)
    print("vocabulary", len(vocab), "mean words", sum(len(t.split()) for t in texts) / len(texts))

    loader = DataLoader(
        TicketDataset(texts, labels, vocab), batch_size=BATCH_SIZE, shuffle=True, collate_fn=collate
    )
    model = TicketClassifier(len(vocab), len(QUEUES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    step = 0
    for epoch in range(EPOCHS):
        running = 0.0
        for ids, y in loader:
            logits = model(ids)
            loss = criterion(logits, y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            running += loss.item()
            if step % 5 == 0:
                print(f"epoch {epoch + 1} step {step} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch + 1} mean loss {running / len(loader):.4f}")


if __name__ == "__main__":
    main()
