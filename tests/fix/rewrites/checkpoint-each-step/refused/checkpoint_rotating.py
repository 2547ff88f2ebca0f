# hot `torch.save` 0.3 -> refused: does something with files in each step
import torch, os
from torch import nn
model = nn.Linear(8, 4)
for step in range(100):
    model(torch.ones(4, 8)).mean().backward()
    torch.save(model.state_dict(), "a.pt")
    os.replace("a.pt", "b.pt")
