"""Running parity of a bit stream with an LSTMCell; updates every K ticks inside the sequence."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--steps", type=int, default=60, help="sequences batches per epoch")
parser.add_argument("--batch", type=int, default=48)
parser.add_argument("--length", type=int, default=240)
parser.add_argument("--k", type=int, default=12, help="truncation window")
parser.add_argument("--hidden", type=int, default=64)
parser.add_argument("--lr", type=float, default=4e-3)
parser.add_argument("--log-every", type=int, default=10)


class Ticker(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embed = nn.Embedding(2, 16)
        self.cell = nn.LSTMCell(16, hidden)
        self.readout = nn.Linear(hidden, 2)

    def init_state(self, n):
        z = torch.zeros(n, self.cell.hidden_size)
        return z, z.clone()

    def tick(self, bit, state):
        state = self.cell(self.embed(bit), state)
        return self.readout(state[0]), state


def make_batch(n, length, gen):
    # sparse ones, so that parity is learnable within a short window
    bits = (torch.rand(n, length, generator=gen) < 0.25).long()
    return bits, bits.cumsum(1) % 2


def train_sequence(model, optimizer, bits, parity, k):
    """One pass over a batch of long sequences. Returns mean loss per tick."""
    state = model.init_state(len(bits))
    seq_loss, window_loss = 0.0, 0.0
    for t in range(bits.size(1)):
        logits, state = model.tick(bits[:, t], state)
        loss = F.cross_entropy(logits, parity[:, t])
        window_loss += loss
        if (t + 1) % k == 0:
            optimizer.zero_grad()
            (window_loss / k).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            seq_loss += window_loss.item()
            window_loss = 0.0
            state = tuple(s.detach() for s in state)
    return seq_loss / bits.size(1)


@torch.no_grad()
def test_accuracy(model, bits, parity):
    state, right = model.init_state(len(bits)), 0
    for t in range(bits.size(1)):
        logits, state = model.tick(bits[:, t], state)
        right += (logits.argmax(1) == parity[:, t]).sum().item()
    return right / bits.numel()


def main():
    args = parser.parse_args()
    torch.manual_seed(6)
    gen = torch.Generator().manual_seed(60)
    model = Ticker(args.hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    test_bits, test_parity = make_batch(256, args.length, torch.Generator().manual_seed(61))
    for epoch in range(args.epochs):
        for step in range(1, args.steps + 1):
            bits, parity = make_batch(args.batch, args.length, gen)
            loss = train_sequence(model, optimizer, bits, parity, args.k)
            if step % args.log_every == 0:
                print(f"epoch {epoch} batch {step} loss/tick {loss:.4f}")
        print(f"epoch {epoch} test accuracy {test_accuracy(model, test_bits, test_parity):.4f}")


if __name__ == "__main__":
    main()
