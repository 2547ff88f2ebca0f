# hot `bias = self.distances` 0.4 -> nothing
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim: int, window: int = 8) -> None:
        super().__init__()
        self.window = window
        self.qkv = nn.Linear(dim, 3 * dim)

    def distances(self, t: int):
        bias = torch.full((t, t), float("-inf"))
        for i in range(t):
            first = max(0, i - self.window + 1)
            bias[i, first : i + 1] = -0.5 * torch.arange(i - first, -1, -1)
        return bias

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        bias = self.distances(t)
        return (q @ k.transpose(1, 2) / d**0.5 + bias).softmax(-1) @ v


torch.manual_seed(0)
model = Attention(16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    loss = model(torch.randn(4, 32 + 32 * (step > 10), 16)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.window += step
print(loss.item())
