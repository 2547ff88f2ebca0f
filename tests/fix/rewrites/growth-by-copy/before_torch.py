# hot `bank = torch.cat` 0.3
"""A bank of features that grows in each step."""

import torch

model = torch.nn.Linear(64, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
bank = torch.zeros(0, 32)
for step in range(200):
    x = torch.randn(16, 64)
    z = model(x)
    loss = z.pow(2).mean() + (z @ bank.t()).exp().mean() if len(bank) else z.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    bank = torch.cat((bank, z.detach()), dim=0)
