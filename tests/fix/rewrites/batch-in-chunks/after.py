# died `out = model(x)`
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Sequential(nn.Linear(64, 4096), nn.ReLU(), nn.Linear(4096, 4))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.ones(8192, 64), torch.zeros(8192, dtype=torch.long))
for x, y in DataLoader(data, batch_size=4096):
    optimizer.zero_grad()
    loss = 0.0
    for x_part, y_part in zip(x.chunk(4), y.chunk(4)):
        loss_part = criterion(model(x_part), y_part) * (len(x_part) / len(x))
        loss_part.backward()
        loss = loss + loss_part.detach()
    optimizer.step()
    print(f"{loss.item():.4f}")
