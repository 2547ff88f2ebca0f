"""Few-shot features: after each round a fresh head is fitted on a handful of held out shapes."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def shapes(n, seed, classes, size=32):
    g = torch.Generator().manual_seed(seed)
    protos = torch.randn(classes, 1, 6, 6, generator=torch.Generator().manual_seed(100 + classes))
    y = torch.arange(n) % classes
    x = F.interpolate(protos, size=(size, size), mode="bilinear")[y]
    return x + 1.5 * torch.randn(n, 1, size, size, generator=g), y


class Features(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(48 * 64, dim),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


def evaluate_few_shot(model, x, y, ways=5, shots=20, steps=25):
    """A linear head on the features, fitted by a few steps of gradient descent; accuracy on the rest."""
    model.eval()
    head = nn.Linear(64, ways)
    nn.init.zeros_(head.weight)
    opt = torch.optim.SGD(head.parameters(), lr=5.0)
    for _ in range(steps):
        loss = F.cross_entropy(head(model(x[:shots * ways])), y[:shots * ways])
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.zero_grad()
    guess = head(model(x[shots * ways:])).argmax(1)
    model.train()
    return (guess == y[shots * ways:]).float().mean().item()


def main():
    torch.manual_seed(21)
    x, y = shapes(2000, 1, classes=10)
    x_new, y_new = shapes(600, 2, classes=5)
    model, head = Features(), nn.Linear(64, 10)
    opt = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-3)
    for round_ in range(6):
        for idx in torch.randperm(len(x)).split(64):
            loss = F.cross_entropy(8 * head(model(x[idx])), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"round {round_} loss {loss.item():.4f} few-shot {evaluate_few_shot(model, x_new, y_new):.4f}")


if __name__ == "__main__":
    main()
