# died `out = model(x)` -> refused: compared with each other
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Sequential(nn.Linear(64, 4096), nn.ReLU(), nn.Linear(4096, 4))
from package import contrastive_loss as criterion
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.ones(8192, 64), torch.zeros(8192, dtype=torch.long))
for x, y in DataLoader(data, batch_size=4096):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.4f}")
