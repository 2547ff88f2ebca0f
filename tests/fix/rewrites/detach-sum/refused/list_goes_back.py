# keeps `losses.append(` -> refused: goes into a backward later
import torch
from torch import nn

policy = nn.Linear(4, 2)
optimizer = torch.optim.Adam(policy.parameters())
for episode in range(100):
    losses = []
    for state in torch.randn(30, 4):
        choice = torch.distributions.Categorical(logits=policy(state))
        losses.append(-choice.log_prob(choice.sample()))
    optimizer.zero_grad()
    loss = torch.stack(losses).mean()
    loss.backward()
    optimizer.step()
