"""Workers started with spawn import torch again for every short epoch."""

from parts import FIXED, Pixels, conv, threads, train
from torch.utils.data import DataLoader

if __name__ == "__main__":
    threads()
    loader = DataLoader(
        Pixels(length=16 * 40), batch_size=16, num_workers=1, multiprocessing_context="spawn", persistent_workers=FIXED
    )
    train(conv(), loader)
