# hot `accuracy =` 0.3 -> refused: cannot be seen in this file
import torch
from torch import nn


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
        accuracy = (nn.functional.dropout(logits).argmax(1) == y).float().mean().item()
        losses.append(loss.item())
        if step % 20 == 0:
            print(step, accuracy)


main()
