# hot `found = ` 0.3
import torch
from torch import nn

model = nn.Linear(8, 1000)


@torch.no_grad()
def guesses(batches):
    found = torch.cat([model(batch) for batch in batches]).argmax(dim=1)
    return found


print(guesses(torch.randn(100, 64, 8)).bincount())
