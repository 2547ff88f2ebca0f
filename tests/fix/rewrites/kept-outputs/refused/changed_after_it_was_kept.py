# hot `kept.append(logits)` 0.3; keeps `kept.append(logits)` -> refused: changes `logits` in place
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(256, 8), torch.randint(0, 4, (256,)))
loader = DataLoader(data, 16)
model.eval()
kept, ys = [], []
with torch.no_grad():
    for x, y in loader:
        logits = model(x)
        kept.append(logits)
        logits.zero_()
        ys.append(y)
p = torch.cat(kept).argmax(1)
print(p)
