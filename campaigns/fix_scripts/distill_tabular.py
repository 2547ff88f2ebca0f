"""Squeeze an ensemble of wide nets into a small one (synthetic physics table)."""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    seed: int = 8
    n: int = 6000
    n_features: int = 40
    n_classes: int = 8
    members: int = 3
    teacher_steps: int = 140
    student_steps: int = 1200
    batch: int = 256
    temperature: float = 3.0
    mix: float = 0.7
    ema: float = 0.995


def build_data(c):
    x = torch.randn(c.n, c.n_features)
    hidden = torch.tanh(x @ torch.randn(c.n_features, 24) / 4)
    logits = hidden @ torch.randn(24, c.n_classes) + 0.7 * torch.randn(c.n, c.n_classes)
    y = logits.argmax(1)
    cut = int(0.85 * c.n)
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def net(n_in, width, n_out, depth):
    layers, last = [], n_in
    for _ in range(depth):
        layers += [nn.Linear(last, width), nn.GELU()]
        last = width
    return nn.Sequential(*layers, nn.Linear(last, n_out))


def batches(n, size, steps):
    for _ in range(steps):
        yield torch.randint(0, n, (size,))


def train_teacher(c, x, y, k):
    model = net(c.n_features, 768, c.n_classes, 2)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for idx in batches(len(x), c.batch, c.teacher_steps):
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"teacher {k} final loss {loss.item():.4f}")
    return model.eval()


@torch.inference_mode()
def ensemble_logits(teachers, x):
    return torch.stack([t(x) for t in teachers]).mean(0)


class Average:
    def __init__(self, model, decay):
        self.decay = decay
        self.live = [p for p in model.parameters()]
        self.slow = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_(self.slow, [p.detach() for p in self.live], 1 - self.decay)

    @torch.no_grad()
    def swap(self):
        for a, b in zip(self.live, self.slow):
            tmp = a.clone()
            a.copy_(b)
            b.copy_(tmp)


def main(c=Config()):
    torch.manual_seed(c.seed)
    (x, y), (xv, yv) = build_data(c)
    teachers = [train_teacher(c, x, y, k) for k in range(c.members)]
    soft = ensemble_logits(teachers, x).clone()
    soft_log = F.log_softmax(soft / c.temperature, dim=1)
    with torch.no_grad():
        acc = (ensemble_logits(teachers, xv).argmax(1) == yv).float().mean().item()
    print(f"ensemble accuracy {acc:.3f}")
    del teachers

    student = net(c.n_features, 384, c.n_classes, 3)
    opt = torch.optim.AdamW(student.parameters(), lr=1e-3)
    slow = Average(student, c.ema)
    for step, idx in enumerate(batches(len(x), c.batch, c.student_steps), 1):
        out = student(x[idx])
        kd = F.kl_div(F.log_softmax(out / c.temperature, 1), soft_log[idx], log_target=True, reduction="batchmean")
        loss = c.mix * c.temperature ** 2 * kd + (1 - c.mix) * F.cross_entropy(out, y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        slow.update()
        if step % 300 == 0:
            slow.swap()
            with torch.no_grad():
                acc = (student(xv).argmax(1) == yv).float().mean().item()
            slow.swap()
            print(f"student {step} loss {loss.item():.4f} averaged acc {acc:.3f}")


if __name__ == "__main__":
    main()
