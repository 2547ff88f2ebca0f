"""Predict the subcellular compartment of a protein from its sequence (1D CNN).

Synthetic sequences: background amino acid frequencies plus compartment specific
motifs placed at random positions.

    python protein_loc.py --n-train 9000 --epochs 2
"""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ALPHABET = "ACDEFGHIKLMNPQRSTVWY-"          # '-' is padding
INDEX = {aa: i for i, aa in enumerate(ALPHABET)}
COMPARTMENTS = ["nucleus", "mitochondrion", "secreted", "membrane", "cytosol"]
MOTIFS = {
    0: ["PKKKRKV", "KRPAATKK"],
    1: ["MLSRAVLR", "RRLSFRAY"],
    2: ["MKWVTFIS", "LLFLFSSAYS"],
    3: ["LLIVGVVLL", "IAGVLLFIL"],
    4: [],
}


def get_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n-train", type=int, default=9000)
    parser.add_argument("--n-val", type=int, default=1000)
    parser.add_argument("--max-len", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=5)
    return parser.parse_args()


def random_proteins(n, max_len, rng):
    """A list of n strings and their labels."""
    letters = np.array(list(ALPHABET[:-1]))
    seqs, labels = [], rng.integers(0, len(COMPARTMENTS), size=n)
    for label in labels:
        length = rng.integers(max_len // 2, max_len + 1)
        seq = rng.choice(letters, size=length)
        for motif in MOTIFS[int(label)]:
            for _ in range(2):
                at = rng.integers(0, length - len(motif))
                seq[at:at + len(motif)] = list(motif)
        seqs.append("".join(seq))
    return seqs, labels


def encode(seqs, max_len):
    """(N, 21, L) one-hot encoding, padded at the right."""
    ids = torch.full((len(seqs), max_len), INDEX["-"], dtype=torch.long)
    for row, seq in enumerate(seqs):
        ids[row, :len(seq)] = torch.tensor([INDEX[aa] for aa in seq])
    return F.one_hot(ids, len(ALPHABET)).float().transpose(1, 2)


class LocNet(nn.Module):
    def __init__(self, channels=48, n_classes=len(COMPARTMENTS)):
        super().__init__()
        self.conv1 = nn.Conv1d(len(ALPHABET), channels, kernel_size=9, padding=4)
        self.conv2 = nn.Conv1d(channels, channels, kernel_size=5, padding=2)
        self.fc = nn.Linear(channels, n_classes)

    def forward(self, x):
        x = F.max_pool1d(F.relu(self.conv1(x)), 4)
        x = F.relu(self.conv2(x))
        return self.fc(x.amax(dim=2))


@torch.no_grad()
def evaluate(model, x, y, batch_size, device):
    model.eval()
    loss, correct = 0.0, 0
    for i in range(0, len(x), batch_size):
        xb, yb = x[i:i + batch_size].to(device), y[i:i + batch_size].to(device)
        out = model(xb)
        loss += F.cross_entropy(out, yb, reduction="sum").item()
        correct += (out.argmax(1) == yb).sum().item()
    return loss / len(x), correct / len(x)


def main():
    args = get_args()
    rng = np.random.default_rng(args.seed)
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    seqs, labels = random_proteins(args.n_train + args.n_val, args.max_len, rng)
    x = encode(seqs, args.max_len)
    y = torch.from_numpy(labels)
    x_train, y_train = x[:args.n_train], y[:args.n_train]
    x_val, y_val = x[args.n_train:], y[args.n_train:]
    print("train", len(x_train), "val", len(x_val), "length", args.max_len)

    model = LocNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        perm = torch.randperm(len(x_train))
        for i in range(0, len(perm), args.batch_size):
            idx = perm[i:i + args.batch_size]
            xb, yb = x_train[idx].to(device), y_train[idx].to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(idx)
        val_loss, val_acc = evaluate(model, x_val, y_val, args.batch_size, device)
        print(f"epoch {epoch}: train loss {total / len(x_train):.6f} "
              f"val loss {val_loss:.6f} val acc {val_acc:.4f}", flush=True)


if __name__ == "__main__":
    main()
