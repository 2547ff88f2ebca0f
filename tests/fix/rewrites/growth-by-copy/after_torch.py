# hot `bank = torch.cat` 0.3
"""A bank of features that grows in each step."""

import weakref
import torch

_ROOMS = {}


def grown(rows, new, most=None):
    # the new rows go into free space behind the old ones, which are copied when there is none left
    room, end = _ROOMS.pop(id(rows), (rows, len(rows)))
    first, end = end - len(rows), end + len(new)
    if end > len(room):
        first, end = 0, len(rows) + len(new)
        room = rows.new_empty((2 * end, *rows.shape[1:]))
        room[: len(rows)] = rows
    room[end - len(new) : end] = new
    rows = room[max(first, end - most) if most else first : end]
    _ROOMS[id(rows)] = room, end
    weakref.finalize(rows, _ROOMS.pop, id(rows), None)
    return rows

model = torch.nn.Linear(64, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
bank = torch.zeros(0, 32)
for step in range(200):
    x = torch.randn(16, 64)
    z = model(x)
    loss = z.pow(2).mean() + (z @ bank.t()).exp().mean() if len(bank) else z.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    bank = grown(bank, z.detach())
