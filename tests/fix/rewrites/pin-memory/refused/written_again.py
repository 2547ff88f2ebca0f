# loader `loader = DataLoader`; cuda; hot `gpu = x.to` 0.2 -> refused: perhaps while it is still being copied
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Linear(8, 1).cuda()
loader = DataLoader(TensorDataset(torch.randn(256, 8)), batch_size=16, collate_fn=lambda samples: torch.stack([s[0] for s in samples]))
for x in loader:
    gpu = x.to("cuda")
    x.zero_()
    model(gpu).sum().backward()
