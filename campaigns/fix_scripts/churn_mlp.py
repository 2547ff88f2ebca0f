# Customer churn, MLP with category embeddings
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

cfg = dict(seed=42, rows=1280, val_rows=512, batch_size=128, epochs=40, lr=2e-3, workers=2, hidden=384)


class ChurnTable(Dataset):
    N_NUM = 14
    CARDS = (12, 7, 30)

    def __init__(self, rows, seed):
        g = torch.Generator().manual_seed(seed)
        self.num = torch.randn(rows, self.N_NUM, generator=g)
        self.cat = torch.stack([torch.randint(0, c, (rows,), generator=g) for c in self.CARDS], 1)
        score = self.num[:, 0] * 0.9 - self.num[:, 3] * self.num[:, 5] + 0.25 * (self.cat[:, 0] - 6).float()
        score = score + 0.7 * torch.sin(2 * self.num[:, 7])
        score = score + 0.5 * torch.randn(rows, generator=g)
        self.y = (score > 0.3).float()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.num[i], self.cat[i], self.y[i]


class ChurnModel(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embs = nn.ModuleList([nn.Embedding(c, 6) for c in ChurnTable.CARDS])
        width = ChurnTable.N_NUM + 6 * len(ChurnTable.CARDS)
        self.mlp = nn.Sequential(
            nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.3),
            nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.3),
            nn.Linear(hidden, 1),
        )

    def forward(self, num, cat):
        parts = [num] + [e(cat[:, k]) for k, e in enumerate(self.embs)]
        return self.mlp(torch.cat(parts, 1)).squeeze(1)


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg["seed"])
        train, val = ChurnTable(cfg["rows"], 1), ChurnTable(cfg["val_rows"], 2)
        self.train_loader = DataLoader(train, batch_size=cfg["batch_size"], shuffle=True,
                                       num_workers=cfg["workers"], drop_last=True)
        self.val_loader = DataLoader(val, batch_size=256, num_workers=cfg["workers"])
        self.model = ChurnModel(cfg["hidden"])
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg["lr"], weight_decay=1e-2)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(
            self.opt, max_lr=cfg["lr"], total_steps=cfg["epochs"] * len(self.train_loader))
        self.bce = nn.BCEWithLogitsLoss()

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for num, cat, y in self.train_loader:
            loss = self.bce(self.model(num, cat), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.sched.step()
            total += loss.item()
        return total / len(self.train_loader)

    @torch.no_grad()
    def val_epoch(self):
        self.model.eval()
        loss, right, n = 0.0, 0, 0
        for num, cat, y in self.val_loader:
            out = self.model(num, cat)
            loss += self.bce(out, y).item() * len(y)
            right += ((out > 0).float() == y).sum().item()
            n += len(y)
        return loss / n, right / n

    def run(self):
        for epoch in range(self.cfg["epochs"]):
            tr = self.train_epoch()
            vl, acc = self.val_epoch()
            if (epoch + 1) % 10 == 0:
                print(f"{epoch + 1:3d}: train {tr:.4f} val {vl:.4f} acc {acc:.3f}")


if __name__ == "__main__":
    Trainer(cfg).run()
