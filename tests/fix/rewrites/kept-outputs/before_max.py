# grows; hot `model = ` 0.01
import torch
from torch import nn

model = nn.Linear(8, 1000)


def accuracy(batches, labels):
    model.eval()
    scores = []
    with torch.no_grad():
        for batch in batches:
            scores.append(model(batch))
    return (torch.cat(scores, 0).max(1)[1] == labels).float().mean().item()


print(accuracy(torch.randn(100, 64, 8), torch.zeros(6400)))
