# hot `loss.backward()` 0.5 -> nothing
import torch
from torch import nn
from torch.nn import functional as F


def train_step(student, teacher, x, optimizer):
    wanted = teacher(x)
    loss = F.mse_loss(student(x), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 10))
    student = nn.Linear(32, 10)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(20):
        x = torch.randn(64, 32)
        print(train_step(student, student, x, optimizer))


main()
