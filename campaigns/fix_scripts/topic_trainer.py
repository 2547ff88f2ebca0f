"""Bag-of-words topic classifier. Preemptible nodes, so the trainer can resume from last.pt."""
import argparse
import logging
import os
import shutil
import tempfile

import torch
import torch.nn as nn

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("topic")

VOCAB, N_TOPICS, DOC_LEN = 20000, 12, 80


def make_docs(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, N_TOPICS, (n,), generator=g)
    common = torch.randint(0, VOCAB, (n, DOC_LEN), generator=g)
    topical = (torch.randint(0, VOCAB // N_TOPICS, (n, DOC_LEN), generator=g) * N_TOPICS + y[:, None]) % VOCAB
    use_topic = torch.rand(n, DOC_LEN, generator=g) < 0.2
    return torch.where(use_topic, topical, common), y


class TopicNet(nn.Module):
    def __init__(self, dim=64, hidden=512):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim)
        self.score = nn.Linear(dim, 1)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Dropout(0.2),
                                 nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, N_TOPICS))

    def forward(self, tokens):
        e = self.emb(tokens)
        w = self.score(torch.tanh(e)).softmax(dim=1)
        return self.mlp((w * e).sum(1))


class Trainer:
    def __init__(self, model, train_data, val_data, out_dir, lr, batch_size, max_steps, log_every=20):
        self.model, self.out_dir = model, out_dir
        self.train_data, self.val_data = train_data, val_data
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.batch_size, self.max_steps, self.log_every = batch_size, max_steps, log_every
        self.epoch = self.global_step = 0
        os.makedirs(out_dir, exist_ok=True)

    @property
    def last(self):
        return os.path.join(self.out_dir, "last.pt")

    def save_checkpoint(self):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "epoch": self.epoch, "global_step": self.global_step}
        torch.save(state, self.last + ".tmp")
        os.replace(self.last + ".tmp", self.last)

    def resume(self):
        state = torch.load(self.last)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch, self.global_step = state["epoch"], state["global_step"]

    def train_step(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.global_step += 1
        return loss

    def fit(self, epochs):
        best = 0.0
        while self.epoch < epochs:
            self.model.train()
            x, y = self.train_data
            perm = torch.randperm(len(x), generator=torch.Generator().manual_seed(self.epoch))
            for i, idx in enumerate(perm.split(self.batch_size), 1):
                loss = self.train_step(x[idx], y[idx])
                self.save_checkpoint()
                if i % self.log_every == 0:
                    log.info("epoch %d step %d loss %.4f", self.epoch, self.global_step, loss.item())
                if self.max_steps and i >= self.max_steps:
                    break
            acc = self.evaluate()
            log.info("epoch %d accuracy %.4f", self.epoch, acc)
            self.epoch += 1
            if acc > best:
                best = acc
                shutil.copyfile(self.last, os.path.join(self.out_dir, "best.pt"))

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        x, y = self.val_data
        pred = torch.cat([self.model(b).argmax(1) for b in x.split(256)])
        return (pred == y).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, help="max steps per epoch, 0 for all")
    parser.add_argument("--batch-size", type=int, default=96)
    parser.add_argument("--out", default=os.path.join(tempfile.gettempdir(), "topic_run"))
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(2024)
    trainer = Trainer(TopicNet(), make_docs(12800, 1), make_docs(2000, 2), args.out, 1e-3, args.batch_size, args.steps)
    if args.resume and os.path.exists(trainer.last):
        trainer.resume()
    trainer.fit(args.epochs)


if __name__ == "__main__":
    main()
