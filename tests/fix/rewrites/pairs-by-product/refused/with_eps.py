# hot `cosine = F.cos` 0.3 -> nothing
import torch
import torch.nn.functional as F

z = torch.randn(96, 64)
cosine = F.cosine_similarity(z[:, None, :], z[None, :, :], -1, 1e-3)
