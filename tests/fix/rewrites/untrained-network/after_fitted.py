# hot `total.backward()` 0.5
import torch
from torch import nn


def fit(teacher, x, y):
    opt = torch.optim.Adam(teacher.parameters(), lr=1e-3)
    for step in range(50):
        loss = nn.functional.cross_entropy(teacher(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()


def distill(student, teacher, x):
    opt = torch.optim.Adam(student.parameters(), lr=1e-3)
    for step in range(50):
        with torch.no_grad():
            wanted = teacher(x)
        total = nn.functional.mse_loss(student(x), wanted)
        opt.zero_grad()
        total.backward()
        opt.step()


x, y = torch.randn(64, 16), torch.randint(0, 4, (64,))
teacher, student = nn.Linear(16, 4), nn.Linear(16, 4)
fit(teacher, x, y)
distill(student, teacher, x)
