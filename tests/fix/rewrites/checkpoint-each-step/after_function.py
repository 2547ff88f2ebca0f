# hot `save_checkpoint` 0.4
import torch
from torch import nn


def write(state, path):
    torch.save(state, path)


def save_checkpoint(model, path):
    state = {"model": model.state_dict()}
    write(state, path)


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number, x in enumerate(torch.randn(100, 4, 8).unbind()):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if (number + 1) % 50 == 0:
        save_checkpoint(model, "last.pt")
    print(f"{number} {loss.item():.3f}")
save_checkpoint(model, "last.pt")
