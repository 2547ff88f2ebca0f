# hot `torch.save` 0.4 -> refused: from a place that does not count the steps
import torch
from torch import nn


class Saves:
    def __init__(self, path):
        self.path = path

    def on_step_end(self, model):
        torch.save(model.state_dict(), self.path)
