import math
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader

# ----------------------------- config -----------------------------
SEED = 2021
VOCAB_SIZE = 2000
PAD = 0
MAX_LEN = 256
D_MODEL = 64
N_HEADS = 4
N_LAYERS = 2
BATCH_SIZE = 32
EPOCHS = 3
LR = 3e-4

random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)


# ------------------------------ data ------------------------------
class ReviewDataset(Dataset):
    """Fake reviews: some word ids are 'good', some are 'bad', the rest is noise."""

    def __init__(self, n):
        self.samples = []
        for _ in range(n):
            length = int(np.clip(np.random.lognormal(3.1, 0.45), 6, MAX_LEN))
            words = np.random.randint(201, VOCAB_SIZE, length)
            label = random.randint(0, 1)
            k = max(2, length // 6)
            where = np.random.choice(length, k, replace=False)
            words[where] = np.random.randint(1, 101, k) + 100 * label
            self.samples.append((words.tolist(), label))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, idx):
        return self.samples[idx]


def collate_fn(batch):
    ids = torch.full((len(batch), MAX_LEN), PAD, dtype=torch.long)
    labels = torch.zeros(len(batch))
    for i, (words, label) in enumerate(batch):
        ids[i, : len(words)] = torch.tensor(words)
        labels[i] = label
    mask = ids.ne(PAD)
    return ids, mask, labels


# ------------------------------ model -----------------------------
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len):
        super().__init__()
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len).unsqueeze(1).float()
        div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe.unsqueeze(0))

    def forward(self, x):
        return x + self.pe[:, : x.size(1)]


class SentimentModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB_SIZE, D_MODEL, padding_idx=PAD)
        self.pos = PositionalEncoding(D_MODEL, MAX_LEN)
        layer = nn.TransformerEncoderLayer(
            D_MODEL, N_HEADS, dim_feedforward=4 * D_MODEL, dropout=0.0, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, N_LAYERS, enable_nested_tensor=False)
        self.fc = nn.Linear(D_MODEL, 1)

    def forward(self, ids, mask):
        x = self.pos(self.embedding(ids) * math.sqrt(D_MODEL))
        x = self.encoder(x, src_key_padding_mask=~mask)
        m = mask.unsqueeze(-1).float()
        pooled = (x * m).sum(1) / m.sum(1)  # mean over real words only
        return self.fc(pooled).squeeze(-1)


# ----------------------------- training ---------------------------
train_loader = DataLoader(
    ReviewDataset(1760), batch_size=BATCH_SIZE, shuffle=True, collate_fn=collate_fn
)
model = SentimentModel()
optimizer = torch.optim.Adam(model.parameters(), lr=LR)
criterion = nn.BCEWithLogitsLoss()

for epoch in range(EPOCHS):
    total_loss = 0.0
    total_correct = 0
    model.train()
    for step, (ids, mask, labels) in enumerate(train_loader):
        optimizer.zero_grad()
        logits = model(ids, mask)
        loss = criterion(logits, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total_loss += loss.item()
        total_correct += ((logits > 0).float() == labels).sum().item()
        if (step + 1) % 15 == 0:
            print(f"Epoch {epoch + 1} | Step {step + 1} | Loss {loss.item():.4f}")
    print(
        f"Epoch {epoch + 1}: train loss {total_loss / len(train_loader):.4f}, "
        f"train acc {total_correct / len(train_loader.dataset):.4f}"
    )
