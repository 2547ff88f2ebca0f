# hot `opt.zero_grad` 0.05 -> refused: the optimizer is given more than the parameters of one model
import torch
from torch import nn
a, b = nn.Linear(8, 1), nn.Linear(8, 1)
opt = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1, momentum=0.9)
for step, x in enumerate(torch.randn(10, 4, 8)):
    opt.zero_grad(set_to_none=False)
    net = a if step % 2 else b
    net(x).mean().backward()
    opt.step()
