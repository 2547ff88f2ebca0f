# hot `loss.backward(retain` 0.4 -> refused: gradients of gradients
import torch
from torch import nn

critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
for x in torch.randn(100, 8, 4):
    x.requires_grad_(True)
    score = critic(x).sum()
    (slope,) = torch.autograd.grad(score, x, create_graph=True)
    loss = (slope.norm(dim=1) - 1).pow(2).mean() + score
    loss.backward(retain_graph=True)
