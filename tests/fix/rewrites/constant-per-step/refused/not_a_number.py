# hot `places =` 0.3 -> refused: may be another value in the next step
import torch
from torch import nn


class Bias(nn.Module):
    def __init__(self, buckets):
        super().__init__()
        self.buckets = buckets
        self.table = nn.Embedding(buckets, 4)

    def bucket(self, distance):
        if distance < 0:
            return 0
        return min(distance, self.buckets - 1)

    def forward(self, queries, keys):
        places = torch.zeros(16, 16, dtype=torch.long) + queries + keys
        return self.table(places)


model = Bias(8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    loss = model(torch.zeros(16, dtype=torch.long), 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
