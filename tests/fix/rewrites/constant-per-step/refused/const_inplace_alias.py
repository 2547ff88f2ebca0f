# hot `mask = torch.ones` 0.3 -> refused: changes `view` in place
import torch
x = torch.randn(8)
for step in range(10):
    mask = torch.ones(8)
    view = mask[:4]
    view.mul_(step)
    print((x * mask).sum())
