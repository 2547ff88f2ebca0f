#!/usr/bin/env python3
"""Promoter / non-promoter classification from raw sequence (FASTA in, CNN out)."""
import logging
import os
import random
import sys
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level=logging.INFO)
log = logging.getLogger("promoter")

SEQ_LEN = 600
BASES = "ACGT"
COMPLEMENT = {"A": "T", "C": "G", "G": "C", "T": "A", "N": "N"}


def simulate_fasta(path, n, rng):
    """half of the records carry a TATA box and an Inr motif at the usual distance"""
    with open(path, "w") as fh:
        for k in range(n):
            seq = rng.choices("ACGTN", weights=[25, 25, 25, 25, 1], k=SEQ_LEN)
            label = k % 2
            if label:
                tss = rng.randint(100, SEQ_LEN - 50)
                seq[tss - 30:tss - 22] = "TATAAAAG"
                seq[tss - 2:tss + 5] = "TCAGTCT"
            fh.write(f">rec{k} label={label}\n")
            for i in range(0, SEQ_LEN, 60):
                fh.write("".join(seq[i:i + 60]) + "\n")


def read_fasta(path):
    records, header, chunks = [], None, []
    with open(path) as fh:
        for line in fh:
            line = line.strip()
            if line.startswith(">"):
                if header is not None:
                    records.append((header, "".join(chunks)))
                header, chunks = line[1:], []
            else:
                chunks.append(line)
    records.append((header, "".join(chunks)))
    return records


def reverse_complement(seq):
    return "".join(COMPLEMENT[b] for b in reversed(seq))


def one_hot(seq):
    x = torch.zeros(4, len(seq))
    for i, base in enumerate(seq):
        if base in BASES:
            x[BASES.index(base), i] = 1.0
        else:
            x[:, i] = 0.25
    return x


class PromoterDataset(Dataset):
    def __init__(self, records):
        self.seqs = [s for _, s in records]
        self.labels = [float(h.split("label=")[1]) for h, _ in records]

    def __len__(self):
        return len(self.seqs)

    def __getitem__(self, idx):
        seq = self.seqs[idx]
        if random.random() < 0.5:
            seq = reverse_complement(seq)
        return one_hot(seq), torch.tensor(self.labels[idx])


class PromoterCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(4, 48, 11, padding=5), nn.ReLU(), nn.MaxPool1d(4),
            nn.Conv1d(48, 64, 7, padding=3), nn.ReLU(), nn.MaxPool1d(4),
            nn.Conv1d(64, 64, 5, padding=2), nn.ReLU(),
        )
        self.classifier = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1))

    def forward(self, x):
        return self.classifier(self.features(x).amax(dim=2)).squeeze(1)


def main():
    random.seed(31)
    torch.manual_seed(31)
    fasta = os.path.join(tempfile.mkdtemp(prefix="promoter_"), "train.fa")
    simulate_fasta(fasta, 1280, random.Random(31))
    records = read_fasta(fasta)
    log.info("%d records read", len(records))

    loader = DataLoader(PromoterDataset(records), batch_size=32, shuffle=True)
    model = PromoterCNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.BCEWithLogitsLoss()

    step = 0
    for epoch in range(4):
        correct = 0
        for x, y in loader:
            optimizer.zero_grad()
            logits = model(x)
            loss = criterion(logits, y)
            loss.backward()
            optimizer.step()
            correct += ((logits > 0).float() == y).sum().item()
            if step % 5 == 0:
                log.info("epoch %d step %d loss %.6f", epoch, step, loss.item())
            step += 1
        log.info("epoch %d accuracy %.4f", epoch, correct / len(records))


if __name__ == "__main__":
    main()
