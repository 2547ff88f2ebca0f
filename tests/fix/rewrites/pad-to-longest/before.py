# hot `loss.backward()` 0.5
import torch
from torch import nn
from torch.utils.data import DataLoader

PAD, MAX_LEN = 0, 256


def collate(rows):
    ids = torch.full((len(rows), MAX_LEN), PAD, dtype=torch.long)
    tags = torch.full((len(rows), MAX_LEN), -100, dtype=torch.long)
    for i, (words, marks) in enumerate(rows):
        ids[i, : len(words)] = torch.tensor(words)
        tags[i, : len(marks)] = torch.tensor(marks)
    return ids, tags


rows = [([1 + n % 50] * (3 + n % 40), [n % 5] * (3 + n % 40)) for n in range(512)]
loader = DataLoader(rows, batch_size=16, shuffle=True, collate_fn=collate)
model = nn.Sequential(nn.Embedding(51, 32, padding_idx=PAD), nn.Linear(32, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for ids, tags in loader:
        loss = nn.functional.cross_entropy(model(ids).transpose(1, 2), tags, ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
