# loader `loader = DataLoader`; cuda; hot `x, y = x.to` 0.2
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda")
model = nn.Linear(8, 1).to(device)
loader = DataLoader(TensorDataset(torch.randn(256, 8), torch.randn(256, 1)), batch_size=16)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    nn.functional.mse_loss(model(x), y).backward()
