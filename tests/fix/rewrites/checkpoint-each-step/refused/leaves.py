# hot `torch.save` 0.3 -> refused: may leave the loop
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(256, 8), torch.randn(256, 1)), batch_size=16, shuffle=True)
for epoch in range(3):
    running = 0.0
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.save(model.state_dict(), "last.pt")
        if loss < 0.1:
            break
