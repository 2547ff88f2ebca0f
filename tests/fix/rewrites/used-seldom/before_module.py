# hot `found, total =` 0.3
import torch
from torch import nn


def spread(model):
    found = {}
    total = 0.0
    with torch.no_grad():
        for name, weight in model.named_parameters():
            found[name] = torch.linalg.svdvals(weight.reshape(4, -1))[0].item()
            total += found[name]
    return found, total


torch.manual_seed(0)
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(40):
    x, y = torch.randn(16, 8), torch.randint(4, (16,))
    logits = model(x)
    loss = nn.functional.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found, total = spread(model)
    losses.append(loss.item())
    if step % 20 == 0:
        print(step, found, total)
