"""Lightning that saves a checkpoint every second step."""

import tempfile

from lightning.pytorch.callbacks import ModelCheckpoint
from lightning_parts import Classifier, fit
from parts import Vectors, mlp
from torch.utils.data import DataLoader

saver = ModelCheckpoint(dirpath=tempfile.mkdtemp(), every_n_train_steps=2, save_top_k=1, save_last=False)
fit(Classifier(mlp(hidden=1024)), DataLoader(Vectors(), batch_size=16), callbacks=[saver], enable_checkpointing=True)
