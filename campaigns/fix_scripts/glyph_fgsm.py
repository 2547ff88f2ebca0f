import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def get_data(n, seed, num_classes=10, size=28):
    """Blurry random prototypes + shift + noise. Looks enough like glyphs for a robustness smoke test."""
    proto_gen = torch.Generator().manual_seed(1)
    protos = torch.randn(num_classes, 1, 7, 7, generator=proto_gen)
    protos = F.interpolate(protos, size=(size, size), mode="bilinear", align_corners=False)
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, num_classes, (n,), generator=g)
    x = protos[y] + 2.5 * torch.randn(n, 1, size, size, generator=g)
    shift = torch.randint(-3, 4, (n,), generator=g).tolist()
    x = torch.stack([torch.roll(im, s, dims=-1) for im, s in zip(x, shift)])
    return x, y


class ConvNet(nn.Module):
    def __init__(self, width=24, num_classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(2 * width)
        self.fc1 = nn.Linear(2 * width * 7 * 7, 128)
        self.fc2 = nn.Linear(128, num_classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


def evaluate(model, x, y, bs=200):
    model.eval()
    logits = []
    for i in range(0, len(x), bs):
        logits.append(model(x[i:i + bs]))
    logits = torch.cat(logits)
    loss = F.cross_entropy(logits, y)
    acc = (logits.argmax(1) == y).float().mean()
    return loss.item(), acc.item()


def evaluate_fgsm(model, x, y, eps, bs=200):
    model.eval()
    correct = 0
    for i in range(0, len(x), bs):
        xb, yb = x[i:i + bs].clone().requires_grad_(True), y[i:i + bs]
        grad, = torch.autograd.grad(F.cross_entropy(model(xb), yb), xb)
        x_adv = (xb + eps * grad.sign()).detach()
        with torch.no_grad():
            correct += (model(x_adv).argmax(1) == yb).sum().item()
    return correct / len(x)


def main():
    ap = argparse.ArgumentParser(description="clean + FGSM accuracy of a small convnet")
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--steps", type=int, default=None, help="cap on train steps per epoch")
    ap.add_argument("--bs", type=int, default=64)
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--eps", type=float, default=0.4)
    ap.add_argument("--print-freq", type=int, default=10)
    args = ap.parse_args()

    torch.manual_seed(42)
    xtr, ytr = get_data(4800, seed=10)
    xte, yte = get_data(3000, seed=20)

    model = ConvNet()
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    for epoch in range(1, args.epochs + 1):
        model.train()
        start = time.time()
        order = torch.randperm(len(xtr))
        for step, idx in enumerate(order.split(args.bs), 1):
            loss = F.cross_entropy(model(xtr[idx]), ytr[idx], label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % args.print_freq == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
            if args.steps and step >= args.steps:
                break
        val_loss, acc = evaluate(model, xte, yte)
        rob = evaluate_fgsm(model, xte[:600], yte[:600], args.eps)
        print(f"==> epoch {epoch}: val_loss {val_loss:.4f} clean {acc:.4f} fgsm {rob:.4f} "
              f"[{time.time() - start:.1f}s]")


if __name__ == "__main__":
    main()
