"""Accelerate with JPEG decoding in the main process."""

from accelerate_parts import run
from parts import ADVISED, FIXED, Jpegs
from torch.utils.data import DataLoader

run(DataLoader(Jpegs(), batch_size=16, num_workers=ADVISED if FIXED else 0, persistent_workers=FIXED))
