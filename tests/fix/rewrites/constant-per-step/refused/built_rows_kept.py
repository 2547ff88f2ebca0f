# hot `for i in range` 0.3 -> refused: used elsewhere
import torch
from torch import nn

SIZE = 24
torch.manual_seed(0)
model = nn.Linear(SIZE, SIZE)


def train(epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for step in range(10):
            x = torch.randn(4, SIZE)
            rows = []
            for i in range(SIZE):
                rows.append([1.0 / (1 + abs(i - j)) for j in range(SIZE)])
            kernel = torch.tensor(rows)
            loss = (torch.matmul(model(x), kernel) - x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(len(rows))
    print(loss.item())


train(2)
