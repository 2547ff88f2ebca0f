# hot `guess = model(x)` 0.3
import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))
model = model.to("cpu").train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
right = 0
for x, y in zip(torch.ones(50, 16, 8), torch.zeros(50, 16, dtype=torch.long)):
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    with torch.no_grad():
        guess = model(x)
    right += (guess.argmax(1) == y).sum().item()
    optimizer.step()
print(right)
