"""Lightning, compute-bound."""

from lightning_parts import Classifier, fit
from parts import Pixels, conv
from torch.utils.data import DataLoader

fit(Classifier(conv(64)), DataLoader(Pixels(), batch_size=32, num_workers=1, persistent_workers=True))
