# cuda; hot `total += loss` 0.3 -> refused: uses `total` as a plain number
import torch
from torch import nn
model = nn.Linear(8, 4).cuda()
def run():
    total = 0.0
    for i, x in enumerate(torch.ones(10, 4, 8).cuda()):
        loss = model(x).mean()
        total += loss.item()
        loss.backward()
    print(f"{total:.3f}")
    return total
run()
