# hot `self.states = np.conc` 0.3; hot `self.after = np.app` 0.2
import numpy as np
import torch


class Replay:
    def __init__(self, most, width):
        self.most = most
        self.states = np.zeros((0, width), dtype=np.float32)
        self.after = np.zeros((0, width), dtype=np.float32)

    def add(self, state, after):
        self.states = np.concatenate([self.states, state[None]])[-self.most :]
        self.after = np.append(self.after, after[None], axis=0)

    def sample(self, count):
        rows = np.random.randint(0, len(self.states), size=count)
        return torch.from_numpy(self.states[rows]), torch.from_numpy(self.after[rows])


replay = Replay(5000, 64)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
state = np.zeros(64, dtype=np.float32)
for step in range(200):
    new = state + np.random.randn(64).astype(np.float32)
    replay.add(state, new)
    state = new
    x, y = replay.sample(16)
    loss = (model(x) - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
