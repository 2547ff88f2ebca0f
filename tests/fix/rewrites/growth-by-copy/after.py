# hot `self.states = np.conc` 0.3; hot `self.after = np.app` 0.2
import weakref
import numpy as np
import torch

_ROOMS = {}


def grown(rows, new, most=None):
    # the new rows go into free space behind the old ones, which are copied when there is none left
    room, end = _ROOMS.pop(id(rows), (rows, len(rows)))
    first, end = end - len(rows), end + len(new)
    if end > len(room):
        first, end = 0, len(rows) + len(new)
        room = np.empty((2 * end, *rows.shape[1:]), rows.dtype)
        room[: len(rows)] = rows
    room[end - len(new) : end] = new
    rows = room[max(first, end - most) if most else first : end]
    _ROOMS[id(rows)] = room, end
    weakref.finalize(rows, _ROOMS.pop, id(rows), None)
    return rows


class Replay:
    def __init__(self, most, width):
        self.most = most
        self.states = np.zeros((0, width), dtype=np.float32)
        self.after = np.zeros((0, width), dtype=np.float32)

    def add(self, state, after):
        self.states = grown(self.states, state[None], self.most)
        self.after = grown(self.after, after[None])

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
