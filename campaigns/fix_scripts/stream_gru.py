"""Character-level GRU language model on a continuous text stream, truncated BPTT."""
import argparse
import math
import random
import time

import torch
import torch.nn as nn

WORDS = ("the a one red small old quick river stone bird house garden sings falls grows turns over under "
         "near and but while slowly again").split()


def make_text(n_chars, seed):
    rng = random.Random(seed)
    parts, size, state = [], 0, 0
    while size < n_chars:
        state = (state * 3 + rng.choice((1, 2, 5))) % len(WORDS)
        word = WORDS[state] + (". " if rng.random() < 0.1 else " ")
        parts.append(word)
        size += len(word)
    return "".join(parts)[:n_chars]


def batchify(ids, batch_size):
    n = len(ids) // batch_size
    return ids[: n * batch_size].view(batch_size, n)


class CharGRU(nn.Module):
    def __init__(self, vocab, emb=48, hidden=192, layers=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, emb)
        self.gru = nn.GRU(emb, hidden, num_layers=layers, batch_first=True)
        self.fc = nn.Linear(hidden, vocab)

    def forward(self, x, h=None):
        out, h = self.gru(self.emb(x), h)
        return self.fc(out), h


def run_stream(model, stream, bptt, criterion):
    """Yield loss for consecutive chunks, carrying the state but not its history."""
    h = None
    for i in range(0, stream.size(1) - 1 - bptt, bptt):
        x, y = stream[:, i:i + bptt], stream[:, i + 1:i + 1 + bptt]
        logits, h = model(x, h)
        h = h.detach()
        yield criterion(logits.flatten(0, 1), y.flatten())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--steps", type=int, default=0, help="max chunks per epoch")
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--bptt", type=int, default=48)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--log-every", type=int, default=20)
    args = ap.parse_args()

    torch.manual_seed(12)
    text = make_text(200_000, seed=4)
    chars = sorted(set(text))
    lut = {c: i for i, c in enumerate(chars)}
    ids = torch.tensor([lut[c] for c in text])
    cut = int(0.93 * len(ids))
    train_stream, val_stream = batchify(ids[:cut], args.batch_size), batchify(ids[cut:], args.batch_size)

    model = CharGRU(len(chars))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(1, args.epochs + 1):
        model.train()
        start, total, seen = time.time(), 0.0, 0
        for step, loss in enumerate(run_stream(model, train_stream, args.bptt, criterion), 1):
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            total += loss.item()
            seen += 1
            if step % args.log_every == 0:
                print(f"epoch {epoch} chunk {step} loss {total / seen:.4f}")
            if args.steps and step >= args.steps:
                break
        model.eval()
        with torch.no_grad():
            val = [loss.item() for loss in run_stream(model, val_stream, args.bptt, criterion)]
        bpc = sum(val) / len(val) / math.log(2)
        print(f"epoch {epoch} done: val bits/char {bpc:.4f} ({time.time() - start:.1f}s)")


if __name__ == "__main__":
    main()
