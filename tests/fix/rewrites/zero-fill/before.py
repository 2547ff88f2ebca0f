# hot `optimizer.zero_grad` 0.05
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 4096), nn.ReLU(), nn.Linear(4096, 1))

    def forward(self, x):
        return self.layers(x)


model = Net()
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(256, 8), torch.randn(256, 1)), batch_size=16, shuffle=True)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad(set_to_none=False)
        nn.functional.mse_loss(model(x), y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
