"""Prints the norm of every parameter's gradient in every step."""

from parts import Vectors, mlp, threads, train
from torch.utils.data import DataLoader


def report(step, model, loss):
    for name, parameter in model.named_parameters():
        print(step, name, parameter.grad)


threads()
train(mlp(hidden=128), DataLoader(Vectors(), batch_size=32), after_step=report)
