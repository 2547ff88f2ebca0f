# hot `norm = root @ whole` 0.5 -> nothing
import torch
from torch import nn
from torch.nn import functional as F

adj = torch.rand(300, 300)
feat = torch.randn(300, 16)


class Layer(nn.Module):
    def __init__(self, given, gives):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(given, gives))

    def forward(self, x, a):
        # with self loops
        whole = a + torch.eye(a.size(0), device=a.device)
        root = torch.inverse(torch.sqrt(torch.diag(whole.sum(dim=1))))
        norm = root @ whole @ root
        return norm @ (x @ self.weight)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Layer(16, 8)
        self.second = Layer(8, 4)

    def forward(self, x, a):
        a = F.dropout(a)
        return self.second(F.relu(self.first(x, a)), a)


model = Net().to("cpu")
optimizer = torch.optim.Adam(model.parameters())
for step in range(100):
    optimizer.zero_grad()
    model(feat, adj).square().mean().backward()
    optimizer.step()
