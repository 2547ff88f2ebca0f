# hot `norm = d @ whole` 0.5 -> refused: changes `adj` in place
import torch
from torch import nn

adj = torch.rand(400, 400)
adj.fill_diagonal_(0.0)
feat = torch.randn(400, 16)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(16, 4)

    def forward(self, adj, x):
        whole = adj + torch.eye(adj.size(0))
        d = torch.diag(whole.sum(dim=1).pow(-0.5))
        norm = d @ whole @ d
        return norm @ self.lin(x)


model = Net()
optimizer = torch.optim.Adam(model.parameters())
for step in range(100):
    optimizer.zero_grad()
    model(adj, feat).square().mean().backward()
    optimizer.step()
    adj.mul_(0.99)
print(model(adj, feat).sum())
