# graph `feats.append(model` -> refused: what `extract_test_features` returns may go into a backward
import torch
from torch import nn
model = nn.Linear(8, 4)
head = nn.Linear(4, 1)
opt = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)

def extract_test_features(model, loader):
    model.eval()
    feats = []
    for x in loader:
        feats.append(model(x))
    return torch.cat(feats)

def train(feats):
    loss = head(feats).mean()
    loss.backward()
    opt.step()

for e in range(3):
    train(extract_test_features(model, [torch.randn(4, 8)] * 3))
