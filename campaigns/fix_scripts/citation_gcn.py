# Semi-supervised node classification on a stochastic block model, for the
# comparison table in section 4 (GCN row).
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

N_NODES = 1500
N_CLASSES = 6
N_FEAT = 256
HIDDEN = 96
EPOCHS = 130


def sbm(n, k, p_in, p_out, gen):
    y = torch.randint(0, k, (n,), generator=gen)
    same = y[:, None] == y[None, :]
    p = torch.where(same, torch.tensor(p_in), torch.tensor(p_out))
    upper = torch.triu((torch.rand(n, n, generator=gen) < p).float(), diagonal=1)
    return upper + upper.t(), y


def bag_of_words(y, k, d, gen):
    topics = torch.rand(k, d, generator=gen) ** 6
    x = (torch.rand(len(y), d, generator=gen) < 0.04 + 0.12 * topics[y]).float()
    return x / x.sum(1, keepdim=True).clamp(min=1)


def split(y, k, per_class, gen):
    order = torch.randperm(len(y), generator=gen)
    train = torch.cat([order[y[order] == c][:per_class] for c in range(k)])
    rest = order[~torch.isin(order, train)]
    return train, rest[:500]


def normalized_adjacency(adj):
    """D^{-1/2} (A + I) D^{-1/2}, eq. (2)"""
    a = adj + torch.eye(adj.size(0))
    d = a.sum(1)
    d_inv_sqrt = torch.diag(d.pow(-0.5))
    return d_inv_sqrt @ a @ d_inv_sqrt


class GraphConv(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_in, d_out))
        self.bias = nn.Parameter(torch.zeros(d_out))
        bound = 1.0 / math.sqrt(d_out)
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, a_hat, x):
        return a_hat @ (x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, d_in, hidden, k):
        super().__init__()
        self.gc1 = GraphConv(d_in, hidden)
        self.gc2 = GraphConv(hidden, hidden)
        self.gc3 = GraphConv(hidden, k)

    def forward(self, adj, x):
        a_hat = normalized_adjacency(adj)
        x = F.dropout(x, 0.3, self.training)
        x = F.relu(self.gc1(a_hat, x))
        x = F.dropout(x, 0.5, self.training)
        x = F.relu(self.gc2(a_hat, x))
        return self.gc3(a_hat, x)


def accuracy(out, y):
    return (out.argmax(1) == y).float().mean().item()


def train_epoch(model, opt, adj, x, y, idx):
    model.train()
    opt.zero_grad()
    out = model(adj, x)
    loss = F.cross_entropy(out[idx], y[idx])
    loss.backward()
    opt.step()
    return loss.item()


@torch.no_grad()
def test(model, adj, x, y, idx):
    model.eval()
    return accuracy(model(adj, x)[idx], y[idx])


def run(seed=42):
    torch.manual_seed(seed)
    gen = torch.Generator().manual_seed(seed)
    adj, y = sbm(N_NODES, N_CLASSES, 0.015, 0.003, gen)
    x = bag_of_words(y, N_CLASSES, N_FEAT, gen)
    train_idx, test_idx = split(y, N_CLASSES, 20, gen)

    model = GCN(N_FEAT, HIDDEN, N_CLASSES)
    opt = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for epoch in range(EPOCHS):
        loss = train_epoch(model, opt, adj, x, y, train_idx)
        if epoch % 5 == 0:
            print("epoch %03d  loss %.6f" % (epoch, loss))
        if epoch % 25 == 24:
            print("epoch %03d  test acc %.4f" % (epoch, test(model, adj, x, y, test_idx)))


if __name__ == "__main__":
    run()
