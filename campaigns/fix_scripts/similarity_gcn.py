import torch
import torch.nn as nn
import torch.nn.functional as F

# Semi-supervised node classification on a population graph.
# Every subject is a node, edge weights come from a kernel over the clinical covariates
# (age, scores, site ...), node features are noisy measurements.

torch.manual_seed(0)

NUM_NODES = 1400
NUM_COVARIATES = 12
NUM_FEATURES = 32
NUM_CLASSES = 4
HIDDEN = 24
SIGMA = 1.5
STEPS = 440


def make_population():
    labels = torch.randint(0, NUM_CLASSES, (NUM_NODES,))
    centers = torch.randn(NUM_CLASSES, NUM_COVARIATES)
    covariates = centers[labels] + 0.9 * torch.randn(NUM_NODES, NUM_COVARIATES)
    proto = torch.randn(NUM_CLASSES, NUM_FEATURES)
    features = 0.3 * proto[labels] + torch.randn(NUM_NODES, NUM_FEATURES)
    perm = torch.randperm(NUM_NODES)
    return covariates, features, labels, perm[:200], perm[200:600], perm[600:]


def population_graph(covariates, sigma):
    dist = torch.cdist(covariates, covariates)
    weights = torch.exp(-dist.pow(2) / (2 * sigma**2))
    inv_sqrt_deg = weights.sum(1).rsqrt()
    return inv_sqrt_deg[:, None] * weights * inv_sqrt_deg[None, :]


class GraphConv(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.lin = nn.Linear(fan_in, fan_out)

    def forward(self, h, adj):
        return adj @ self.lin(h)


class PopulationGCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.gc1 = GraphConv(NUM_FEATURES, HIDDEN)
        self.gc2 = GraphConv(HIDDEN, NUM_CLASSES)
        self.skip = nn.Linear(NUM_FEATURES, NUM_CLASSES)
        self.drop = nn.Dropout(0.3)

    def forward(self, covariates, features):
        adj = population_graph(covariates, SIGMA)
        h = F.relu(self.gc1(features, adj))
        h = self.gc2(self.drop(h), adj)
        return h + self.skip(features)


def accuracy(logits, labels, idx):
    return (logits[idx].argmax(1) == labels[idx]).float().mean().item()


covariates, features, labels, train_idx, val_idx, test_idx = make_population()
model = PopulationGCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

for step in range(STEPS):
    model.train()
    optimizer.zero_grad()
    logits = model(covariates, features)
    loss = F.cross_entropy(logits[train_idx], labels[train_idx])
    loss.backward()
    optimizer.step()

    if step % 20 == 0:
        model.eval()
        with torch.no_grad():
            logits = model(covariates, features)
            val_loss = F.cross_entropy(logits[val_idx], labels[val_idx])
        print(
            f"{step:4d}  train {loss.item():.6f}  val {val_loss.item():.6f}"
            f"  val acc {accuracy(logits, labels, val_idx):.3f}"
        )

model.eval()
with torch.no_grad():
    logits = model(covariates, features)
print(f"test acc {accuracy(logits, labels, test_idx):.3f}")
