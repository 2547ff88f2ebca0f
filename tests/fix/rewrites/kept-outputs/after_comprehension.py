# hot `found = ` 0.3
import torch
from torch import nn

model = nn.Linear(8, 1000)


@torch.no_grad()
def guesses(batches):
    found = torch.cat([model(batch).argmax(dim=1) for batch in batches])
    return found


print(guesses(torch.randn(100, 64, 8)).bincount())
