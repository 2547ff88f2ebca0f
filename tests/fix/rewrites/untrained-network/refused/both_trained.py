# hot `total.backward()` 0.5 -> nothing
import torch
from torch import nn


def fit(teacher, opt, x, y):
    loss = nn.functional.cross_entropy(teacher(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()


def distill(student, teacher, opt, x):
    for step in range(50):
        wanted = teacher(x)
        total = nn.functional.mse_loss(student(x), wanted)
        opt.zero_grad()
        total.backward()
        opt.step()


x, y = torch.randn(64, 16), torch.randint(0, 4, (64,))
teacher, student = nn.Linear(16, 4), nn.Linear(16, 4)
opt = torch.optim.Adam([*teacher.parameters(), *student.parameters()], lr=1e-3)
fit(teacher, opt, x, y)
distill(student, teacher, opt, x)
