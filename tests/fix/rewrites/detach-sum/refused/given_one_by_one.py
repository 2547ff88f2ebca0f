# keeps `total = total + loss` -> refused: goes into a backward later
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(256, 8), torch.randint(0, 4, (256,)))
loader = DataLoader(data, 16)
def epoch():
    total = 0
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        total = total + loss
        loss.backward()
        opt.step()
        yield total
for e in epoch():
    pass
e.backward()
