# hot `scores.append` 0.3 -> refused: is used for more than its largest column
import torch
from torch import nn

model = nn.Linear(8, 1000)


@torch.no_grad()
def guesses(batches):
    scores = []
    for batch in batches:
        scores.append(model(batch))
    found = torch.cat(scores).argmax(1)
    return found, torch.cat(scores).std()


print(guesses(torch.randn(100, 64, 8)))
