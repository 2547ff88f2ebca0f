"""An edit distance in pure Python after every step."""

from parts import Vectors, mlp, threads, train
from torch.utils.data import DataLoader


def edit_distance(a, b):
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a):
        current = [i + 1]
        for j, y in enumerate(b):
            current.append(min(previous[j] + (x != y), previous[j + 1] + 1, current[j] + 1))
        previous = current
    return previous[-1]


def measure(step, model, loss):
    edit_distance("the quick brown fox jumps over the dog" * 3, "a slow brown dog jumps over the fox" * 3)


threads()
train(mlp(), DataLoader(Vectors(), batch_size=64), after_step=measure)
