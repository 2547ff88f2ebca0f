"""timm with tensors that are ready."""

import torch
from parts import Pixels
from timm_parts import run


class Ready(Pixels):
    """Takes the transform that the loader sets, and needs none."""

    transform = None

    def __init__(self):
        super().__init__()
        self.images = [image.clone() for image in torch.unbind(self.images)]


run(Ready())
