"""A LightningModule and a Trainer for the scripts that use Lightning."""

import logging
import warnings

import lightning
import torch
from parts import LASTS_S, PACE, conv, threads
from torch import nn

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Classifier(lightning.LightningModule):
    def __init__(self, model=None):
        super().__init__()
        self.model = model or conv()

    def training_step(self, batch, _):
        inputs, targets = batch
        loss = nn.functional.cross_entropy(self.model(inputs), targets)
        PACE.step()
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def fit(module, loader, callbacks=(), **options):
    threads()
    settings = {"enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False, **options}
    trainer = lightning.Trainer(
        accelerator="cpu", logger=False, max_epochs=-1, max_time={"seconds": int(LASTS_S)},
        callbacks=list(callbacks), **settings,
    )  # fmt: skip
    trainer.fit(module, loader)
