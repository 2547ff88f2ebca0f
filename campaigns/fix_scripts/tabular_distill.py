#!/usr/bin/env python3
"""Compress a wide MLP into a narrow one by knowledge distillation (tabular data)."""
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Settings:
    rows = 12000
    cols = 40
    classes = 5
    teacher_width = 512
    student_width = 96
    batch = 256
    teacher_steps = 120
    student_steps = 700
    temperature = 3.0
    alpha = 0.8
    noise = 0.1


def build_table(s):
    rng = np.random.default_rng(42)
    x = rng.standard_normal((s.rows, s.cols)).astype(np.float32)
    w1 = rng.standard_normal((s.cols, 64)) / np.sqrt(s.cols)
    w2 = rng.standard_normal((64, s.classes))
    y = (np.tanh(2 * x @ w1) @ w2 + 0.5 * rng.standard_normal((s.rows, s.classes))).argmax(1)
    split = int(0.85 * s.rows)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    return (x[:split], y[:split]), (x[split:], y[split:])


def mlp(cols, width, classes, depth):
    layers, fan_in = [], cols
    for _ in range(depth):
        layers += [nn.Linear(fan_in, width), nn.ReLU()]
        fan_in = width
    return nn.Sequential(*layers, nn.Linear(fan_in, classes))


def batches(x, y, s, steps, gen):
    """Random rows with a little fresh feature noise."""
    for _ in range(steps):
        rows = torch.randint(0, len(x), (s.batch,), generator=gen)
        noise = s.noise * torch.randn(s.batch, s.cols, generator=gen)
        yield x[rows] + noise, y[rows]


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    logits = model(x)
    model.train()
    return F.cross_entropy(logits, y).item(), (logits.argmax(1) == y).float().mean().item()


def fit_teacher(teacher, train, s, gen):
    opt = torch.optim.Adam(teacher.parameters(), lr=1e-3)
    for x, y in batches(*train, s, s.teacher_steps, gen):
        loss = F.cross_entropy(teacher(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return teacher


def distillation_loss(student_logits, teacher_logits, y, s):
    t = s.temperature
    soft = F.kl_div(
        F.log_softmax(student_logits / t, 1), F.softmax(teacher_logits / t, 1), reduction="batchmean"
    )
    hard = F.cross_entropy(student_logits, y)
    return s.alpha * t * t * soft + (1 - s.alpha) * hard


def distill(student, teacher, train, test, s, gen):
    opt = torch.optim.Adam(student.parameters(), lr=2e-3)
    teacher.eval()
    for i, (x, y) in enumerate(batches(*train, s, s.student_steps, gen), 1):
        teacher_logits = teacher(x)
        loss = distillation_loss(student(x), teacher_logits, y, s)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 50 == 0:
            ce, acc = evaluate(student, *test)
            print(f"student {i:4d}: kd {loss.item():.6f}  test ce {ce:.6f}  acc {acc:.3f}")


def main():
    s = Settings()
    torch.manual_seed(42)
    gen = torch.Generator().manual_seed(42)
    train, test = build_table(s)
    teacher = fit_teacher(mlp(s.cols, s.teacher_width, s.classes, 4), train, s, gen)
    ce, acc = evaluate(teacher, *test)
    print(f"teacher: test ce {ce:.6f}  acc {acc:.3f}")
    student = mlp(s.cols, s.student_width, s.classes, 2)
    distill(student, teacher, train, test, s, gen)


if __name__ == "__main__":
    main()
