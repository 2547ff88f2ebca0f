# hot `return self.cosine` 0.3
import torch
from torch import nn


class Similarity(nn.Module):
    def __init__(self):
        super().__init__()
        self.cosine = nn.CosineSimilarity(dim=2)

    def forward(self, queries, keys):
        return torch.nn.functional.normalize(keys, dim=1) @ torch.nn.functional.normalize(queries, dim=1).t()
