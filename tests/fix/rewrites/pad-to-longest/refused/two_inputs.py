# hot `loss.backward()` 0.5; padded `logits = model(ids, label)` 0 -> nothing
import torch
from torch import nn
from torch.utils.data import DataLoader

rows = [(torch.tensor([1 + n % 50] * (3 + n % 40) + [0] * (197 - n % 40)), n % 5) for n in range(512)]
loader = DataLoader(rows, batch_size=16, shuffle=True)
model = nn.Sequential(nn.Embedding(51, 32, padding_idx=0), nn.AdaptiveMaxPool2d((1, 32)), nn.Flatten(), nn.Linear(32, 5))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(2):
    for ids, label in loader:
        logits = model(ids, label)
        loss = criterion(logits, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
