"""Lightning with JPEG decoding in the main process."""

from lightning_parts import Classifier, fit
from parts import ADVISED, FIXED, Jpegs
from torch.utils.data import DataLoader

loader = DataLoader(Jpegs(), batch_size=16, num_workers=ADVISED if FIXED else 0, persistent_workers=FIXED)
fit(Classifier(), loader)
