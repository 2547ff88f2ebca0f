# hot `mask = torch.ones` 0.3 -> refused: hands `mask` to `append`
import torch
kept = []
for step in range(10):
    mask = torch.ones(8)
    kept.append(mask)
    kept[-1].mul_(step)
print(kept)
