# hot `cosine = F.cos` 0.3
import torch
import torch.nn.functional as F

model = torch.nn.Linear(64, 128)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    z = model(torch.randn(96, 64))
    cosine = (F.normalize(z, dim=1) @ F.normalize(z, dim=1).t()) / 0.2
    cosine.fill_diagonal_(-9.0)
    loss = F.cross_entropy(cosine, torch.arange(96).roll(48))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
