"""A wide MLP on ready vectors, no workers needed."""

from parts import Vectors, mlp, threads, train
from torch.utils.data import DataLoader

threads()
train(mlp(hidden=1024, depth=4), DataLoader(Vectors(), batch_size=128))
