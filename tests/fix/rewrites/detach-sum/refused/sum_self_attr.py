# keeps `self.total += loss` -> refused: `self.total` goes into a backward later
import torch
from torch import nn
class T:
    def __init__(self):
        self.model = nn.Linear(8, 4); self.total = 0
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
    def add(self, xs):
        for x in xs:
            loss = self.model(x).mean()
            self.total += loss
    def update(self):
        self.total.backward(); self.opt.step(); self.total = 0
t = T()
for _ in range(3):
    t.add(torch.randn(10, 4, 8)); t.update()
