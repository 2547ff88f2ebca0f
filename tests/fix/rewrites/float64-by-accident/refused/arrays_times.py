# float64 0.9 -> refused: may be meant
import pandas as pd
import torch
from torch import nn

timestamps = frame = pd.DataFrame({"a": range(64), "b": [n / 7 for n in range(64)], "c": [n % 3 for n in range(64)]})
features = torch.tensor(timestamps[["a", "b"]].values.astype(float))
classes = torch.tensor(frame["c"].values)
model = nn.Linear(2, 3).to(features.dtype)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(50):
    loss = nn.functional.cross_entropy(model(features), classes)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
