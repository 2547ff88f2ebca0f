# hot `loss.backward(` 0.3 -> refused: looks up an attribute by its name
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(256, 8), torch.randint(0, 4, (256,)))
loader = DataLoader(data, batch_size=16)

old = []
def penalty(l):
    return tools_(l)

for step, (x, y) in enumerate(loader):
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward(retain_graph=True)
    old.append(loss)
    if step > 40:
        getattr(old[0], 'backward')()
    opt.step()
