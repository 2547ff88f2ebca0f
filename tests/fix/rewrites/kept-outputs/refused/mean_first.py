# hot `scores.append` 0.3 -> nothing
import torch
from torch import nn

model = nn.Linear(8, 1000)


@torch.no_grad()
def guesses(batches):
    scores = []
    for batch in batches:
        scores.append(model(batch))
    all_scores = torch.cat(scores)
    return (all_scores - all_scores.mean(0)).argmax(1)


print(guesses(torch.randn(100, 64, 8)))
