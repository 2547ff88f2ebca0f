"""Accelerate with a BLEU-like score in Python after each step."""

from collections import Counter

from accelerate_parts import run
from parts import Vectors, mlp
from torch.utils.data import DataLoader

WORDS = ("the cat sat on the mat and looked at the other cat " * 8).split()


def score(step, accelerator, loss):
    total = 0
    for order in range(1, 5):
        for shift in range(12):
            left = Counter(tuple(WORDS[i : i + order]) for i in range(len(WORDS) - order))
            right = Counter(tuple(WORDS[shift + i : shift + i + order]) for i in range(len(WORDS) - order - shift))
            total += sum((left & right).values())
    return total


run(DataLoader(Vectors(), batch_size=64), mlp(), score)
