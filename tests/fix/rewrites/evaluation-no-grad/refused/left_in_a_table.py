# graph `CACHE['v'] = ` -> refused: keeps `CACHE`
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(256, 8), torch.randint(0, 4, (256,)))
loader = DataLoader(data, batch_size=16)

def evaluate(model):
    model.eval()
    for x, y in loader:
        CACHE['v'] = model(x)
    return 1.0

for epoch in range(3):
    model.train()
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        (loss + CACHE['v'].sum()).backward()
        opt.step()
    evaluate(model)
CACHE = {}
