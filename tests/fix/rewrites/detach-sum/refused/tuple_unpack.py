# keeps `aux.append(` -> refused: `aux` goes into a backward later
import torch
from torch import nn
model = nn.Linear(8, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
def losses(xs):
    main, aux = [], []
    for x in xs:
        main.append(model(x).mean())
        aux.append(model(x).pow(2).mean())
    return main, aux
for xs in torch.randn(10, 5, 4, 8):
    m, a = losses(xs)
    loss = torch.stack(m).mean() + 0.1 * torch.stack(a).mean()
    opt.zero_grad(); loss.backward(); opt.step()
