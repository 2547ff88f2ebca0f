# keeps `outputs.append` -> refused: is needed whole
import torch
from torch import nn

model = nn.Linear(8, 1000)
with torch.no_grad():
    outputs = []
    labels = []
    for batch in torch.randn(100, 64, 8):
        logits = model(batch)
        outputs.append(logits)
        labels.append(torch.zeros(64, dtype=torch.long))
    right = torch.cat(outputs).argmax(1) == torch.cat(labels)
print(right.float().mean(), torch.cat(outputs).softmax(1).max())
