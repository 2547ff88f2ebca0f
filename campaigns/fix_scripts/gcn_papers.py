# -*- coding: utf-8 -*-
"""
Node classification with a two layer GCN, written from scratch
===============================================================

A small citation-like graph is sampled from a stochastic block model; every
node is a "paper", its class is the block, and its features are a noisy bag of
words. We follow Kipf & Welling: H' = relu(D^-1/2 (A + I) D^-1/2 H W).
"""
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(7)
rng = np.random.RandomState(7)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

NUM_NODES = 1100
NUM_CLASSES = 6
NUM_WORDS = 96
HIDDEN = 48
EPOCHS = 90

# ---------------------------------------------------------------------------
# 1. the graph
# ---------------------------------------------------------------------------
labels_np = rng.randint(0, NUM_CLASSES, size=NUM_NODES)
same = labels_np[:, None] == labels_np[None, :]
prob = np.where(same, 0.018, 0.003)
upper = np.triu(rng.rand(NUM_NODES, NUM_NODES) < prob, k=1)
adj_np = (upper | upper.T).astype(np.float32)

topics = rng.rand(NUM_CLASSES, NUM_WORDS) * 0.2
feat_np = (rng.rand(NUM_NODES, NUM_WORDS) < topics[labels_np]).astype(np.float32)

adj = torch.from_numpy(adj_np).to(device)
features = torch.from_numpy(feat_np).to(device)
labels = torch.from_numpy(labels_np).long().to(device)

order = rng.permutation(NUM_NODES)
idx_train = torch.from_numpy(order[:180]).to(device)
idx_val = torch.from_numpy(order[180:480]).to(device)
idx_test = torch.from_numpy(order[480:]).to(device)

print(f"nodes {NUM_NODES}  edges {int(adj_np.sum()) // 2}  words {NUM_WORDS}")


# ---------------------------------------------------------------------------
# 2. the model
# ---------------------------------------------------------------------------
class GCNLayer(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_in, d_out))
        self.bias = nn.Parameter(torch.zeros(d_out))
        bound = 1.0 / math.sqrt(d_out)
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, x, a):
        # symmetric normalisation with self loops
        a_tilde = a + torch.eye(a.size(0), device=a.device)
        degree = torch.diag(a_tilde.sum(dim=1))
        d_inv_sqrt = torch.inverse(torch.sqrt(degree))
        a_hat = d_inv_sqrt @ a_tilde @ d_inv_sqrt
        return a_hat @ (x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, d_in, hidden, classes, dropout=0.5):
        super().__init__()
        self.conv1 = GCNLayer(d_in, hidden)
        self.conv2 = GCNLayer(hidden, classes)
        self.dropout = dropout

    def forward(self, x, a):
        x = F.relu(self.conv1(x, a))
        x = F.dropout(x, self.dropout, training=self.training)
        return self.conv2(x, a)


def accuracy(logits, y):
    return (logits.argmax(dim=1) == y).float().mean().item()


# ---------------------------------------------------------------------------
# 3. training
# ---------------------------------------------------------------------------
model = GCN(NUM_WORDS, HIDDEN, NUM_CLASSES).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

start = time.time()
for epoch in range(1, EPOCHS + 1):
    model.train()
    optimizer.zero_grad()
    logits = model(features, adj)
    loss = F.cross_entropy(logits[idx_train], labels[idx_train])
    loss.backward()
    optimizer.step()

    print(f"epoch {epoch:3d}  loss {loss.item():.6f}", end="")
    if epoch % 10 == 0:
        model.eval()
        with torch.no_grad():
            logits = model(features, adj)
        print(f"  val acc {accuracy(logits[idx_val], labels[idx_val]):.3f}", end="")
    print(flush=True)

# ---------------------------------------------------------------------------
# 4. test
# ---------------------------------------------------------------------------
model.eval()
with torch.no_grad():
    logits = model(features, adj)
print(f"test accuracy {accuracy(logits[idx_test], labels[idx_test]):.4f}")
