# loader `train_loader = DataLoader`; workers 2
import torch
from torch.utils.data import DataLoader

from data import make_data_set


def main():
    train_loader = DataLoader(
        make_data_set("train"),
        batch_size=16,
        drop_last=True,
        num_workers=2,  # the norm needs full ones
    )
    other = DataLoader(make_data_set("valid"), batch_size=16)
    for x, y in train_loader:
        torch.dot(x.flatten(), y.flatten())
    return other


main()
