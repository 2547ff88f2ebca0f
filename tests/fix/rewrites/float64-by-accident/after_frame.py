# float64 0.9
import pandas as pd
import torch
from torch import nn


def _single(values):
    return values.float() if values.dtype == torch.float64 else values

frame = pd.DataFrame({"a": range(64), "b": [n / 7 for n in range(64)], "c": [n % 3 for n in range(64)]})
features = _single(torch.tensor(frame[["a", "b"]].values.astype(float)))
classes = _single(torch.tensor(frame["c"].values))
model = nn.Linear(2, 3).to(features.dtype)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(50):
    loss = nn.functional.cross_entropy(model(features), classes)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
