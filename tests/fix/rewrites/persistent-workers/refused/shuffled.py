# loader `loader = DataLoader`; starting 0.15 -> refused: the order is shuffled
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.tensor([float(index)]), torch.tensor([float(index) ** 2])


if __name__ == "__main__":
    loader = DataLoader(Squares(), batch_size=16, num_workers=2, shuffle=True)
    model = nn.Linear(1, 1)
    for epoch in range(10):
        for x, y in loader:
            nn.functional.mse_loss(model(x), y).backward()
