# graph `out = model(x)` -> refused: what `predict` returns may go into a backward
import torch
from torch import nn
model = nn.Linear(8, 4)
class Hook:
    def __call__(self, grad): return grad
def predict(model, x):
    out = model(x)
    return out
def test_time_train(model, x):
    loss = predict(model, x).var()
    loss.backward()
for x in torch.randn(10, 4, 8):
    test_time_train(model, x)
