# hot `opt.zero_grad` 0.2 -> refused: may step while there are no gradients
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
data = TensorDataset(torch.randn(256, 8), torch.randint(0, 4, (256,)))
loader = DataLoader(data, batch_size=16)

for step, (x, y) in enumerate(loader):
    opt.zero_grad(set_to_none=False)
    loss = F.cross_entropy(model(x), y)
    if not torch.isfinite(loss):
        opt.step()
        continue
    loss.backward()
    opt.step()
