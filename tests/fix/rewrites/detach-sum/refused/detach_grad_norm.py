# keeps `scores.append(` -> refused: `scores` goes into a backward later
import torch
from torch import nn
model = nn.Linear(8, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
scores = []
for x in torch.randn(10, 4, 8):
    score = model(x).mean()
    scores.append(score)
    score.backward()
    opt.step()
grads = torch.autograd.grad(scores[-1], list(model.parameters()), allow_unused=True)
