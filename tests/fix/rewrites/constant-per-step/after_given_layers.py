# hot `norm = root @ whole` 0.5
import torch
from torch import nn
from torch.nn import functional as F

adj = torch.rand(300, 300)
feat = torch.randn(300, 16)


class Layer(nn.Module):
    def __init__(self, given, gives):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(given, gives))
        self._norm_of = self._norm = None

    def forward(self, x, a):
        # with self loops
        if self._norm_of is not a:
            whole = a + torch.eye(a.size(0), device=a.device)
            root = torch.inverse(torch.sqrt(torch.diag(whole.sum(dim=1))))
            norm = root @ whole @ root
            self._norm_of, self._norm = a, norm
        norm = self._norm
        return norm @ (x @ self.weight)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Layer(16, 8)
        self.second = Layer(8, 4)

    def forward(self, x, a):
        return self.second(F.relu(self.first(x, a)), a)


model = Net().to("cpu")
optimizer = torch.optim.Adam(model.parameters())
for step in range(100):
    optimizer.zero_grad()
    model(feat, adj).square().mean().backward()
    optimizer.step()
