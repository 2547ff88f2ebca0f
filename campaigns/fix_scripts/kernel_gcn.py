#!/usr/bin/env python
# coding: utf-8

# In[1]:
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(21)

# # Semi-supervised node classification on a similarity graph
#
# Nodes are sensors, edge weights are an RBF kernel of their positions.

# In[2]:
N, D, C = 800, 96, 6
centers = torch.randn(C, 2) * 1.2
label = torch.randint(0, C, (N,))
pos = centers[label] + torch.randn(N, 2) * 0.6
proj = torch.randn(C, D) * 0.35
feat = proj[label] + torch.randn(N, D)
adj = torch.exp(-torch.cdist(pos, pos) ** 2 / 0.3)
adj.fill_diagonal_(0.0)

perm = torch.randperm(N)
train_idx, val_idx = perm[:120], perm[120:400]
print("mean degree", round(adj.sum(1).mean().item(), 2))


# In[3]:
class GraphConv(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.lin = nn.Linear(n_in, n_out)

    def forward(self, a, x):
        return a @ self.lin(x)


class GCN(nn.Module):
    def __init__(self, n_in, n_hidden, n_out, p=0.4):
        super().__init__()
        self.g1 = GraphConv(n_in, n_hidden)
        self.g2 = GraphConv(n_hidden, n_hidden)
        self.g3 = GraphConv(n_hidden, n_out)
        self.p = p

    def forward(self, adj, x):
        a_hat = adj + torch.eye(adj.size(0))
        d = torch.diag(a_hat.sum(dim=1).pow(-0.5))
        a_norm = d @ a_hat @ d
        x = F.relu(self.g1(a_norm, x))
        x = F.dropout(x, self.p, self.training)
        x = x + F.relu(self.g2(a_norm, x))
        x = F.dropout(x, self.p, self.training)
        return self.g3(a_norm, x)


# In[4]:
model = GCN(D, 128, C)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=5e-4)


def accuracy(logits, idx):
    return (logits[idx].argmax(1) == label[idx]).float().mean().item()


# In[5]:
history = []
for epoch in range(1, 401):
    model.train()
    optimizer.zero_grad()
    out = model(adj, feat)
    loss = F.cross_entropy(out[train_idx], label[train_idx])
    loss.backward()
    optimizer.step()
    history.append(loss.item())
    if epoch % 50 == 0:
        model.eval()
        with torch.no_grad():
            val = accuracy(model(adj, feat), val_idx)
        print(f"epoch {epoch:4d}  loss {history[-1]:.4f}  val acc {val:.3f}")

# In[6]:
print("mean of last 20 losses", round(sum(history[-20:]) / 20, 4))
