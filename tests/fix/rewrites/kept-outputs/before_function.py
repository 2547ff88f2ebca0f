# hot `scores.append` 0.3
import torch
from torch import nn

model = nn.Linear(8, 1000)


@torch.no_grad()
def guesses(batches):
    scores = []
    for batch in batches:
        scores.append(model(batch))
    return torch.argmax(torch.cat(scores), dim=1)


print(guesses(torch.randn(100, 64, 8)).bincount())
