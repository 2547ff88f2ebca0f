# hot `accuracy =` 0.3 -> refused: cannot be seen in this file
import torch
import torch.distributed as dist
from torch import nn


def mean_of_ranks(value):
    gathered = [value]
    dist.all_gather_object(gathered, value)
    return gathered[0]


def main():
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(40):
        x, y = torch.randn(16, 8), torch.randint(4, (16,))
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        accuracy = mean_of_ranks(loss)
        losses.append(loss.item())
        if step % 20 == 0:
            print(step, accuracy)


main()
