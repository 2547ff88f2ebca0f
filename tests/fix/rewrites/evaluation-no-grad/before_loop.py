# died `val_loss += criterion`
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    criterion = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(256, 8), torch.randn(256, 1)), batch_size=16)
    for epoch in range(3):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        model.eval()
        val_loss = 0.0
        for x, y in loader:
            # all of it
            val_loss += criterion(model(x), y)

            x = None
        print(f"epoch {epoch}: {float(val_loss):.4f}")


main()
