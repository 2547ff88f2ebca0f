# hot `scores.append` 0.3
import torch
from torch import nn

model = nn.Linear(8, 1000)


@torch.no_grad()
def guesses(batches):
    scores = []
    for batch in batches:
        scores.append(model(batch).softmax(dim=-1).cpu().argmax(-1))
    return torch.cat(scores)


print(guesses(torch.randn(100, 64, 8)).bincount())
