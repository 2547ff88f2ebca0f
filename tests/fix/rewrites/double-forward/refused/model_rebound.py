# hot `again = net(x)` 0.3 -> refused: may change the model or the batch between the two calls
import torch
from torch import nn
net = nn.Linear(8, 4)
for x in torch.ones(10, 4, 8):
    out = net(x)
    loss = out.mean()
    loss.backward()
    for p in net.parameters():
        p.data -= p.grad
    with torch.no_grad():
        again = net(x)
    print(again.mean())
