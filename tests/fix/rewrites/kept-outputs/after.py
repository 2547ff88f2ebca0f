# keeps `outputs.append`
import torch
from torch import nn

model = nn.Linear(8, 1000)
with torch.no_grad():
    outputs = []
    labels = []
    for batch in torch.randn(100, 64, 8):
        logits = model(batch)
        outputs.append(logits.argmax(1))
        labels.append(torch.zeros(64, dtype=torch.long))
    right = torch.cat(outputs) == torch.cat(labels)
print(f"{right.float().mean():.3f}")
