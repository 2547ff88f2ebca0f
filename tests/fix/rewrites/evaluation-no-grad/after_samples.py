# hot `x = x - 0.02`
import torch
from torch import nn

STEPS = 50
model = nn.Sequential(nn.Linear(3, 128), nn.ReLU(), nn.Linear(128, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


@torch.no_grad()
def sample(net, count):
    x = torch.randn(count, 2)
    for step in range(STEPS):
        time = torch.full((count, 1), step / STEPS)
        x = x - 0.02 * net(torch.cat([x, time], dim=1))
    return x


for epoch in range(3):
    model.train()
    for _ in range(20):
        clean, noise = torch.randn(64, 2), torch.randn(64, 2)
        guess = model(torch.cat([clean + noise, torch.rand(64, 1)], dim=1))
        loss = (guess - noise).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    if epoch % 2 == 0:
        drawn = sample(model, 500)
        print(f"epoch {epoch}: spread {drawn.std().item():.3f}")
