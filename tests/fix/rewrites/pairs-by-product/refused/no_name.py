# hot `cosine = cosine_similarity` 0.3 -> refused: the file does not import torch by a name that a new line could use
from torch import randn
from torch.nn.functional import cosine_similarity

z = randn(96, 64)
cosine = cosine_similarity(z.unsqueeze(1), z.unsqueeze(0), dim=2)
