"""Writes every gradient through the logging module, each line flushed to disk."""

import logging
import os
import pathlib
import tempfile

from parts import Vectors, mlp, threads, train
from torch.utils.data import DataLoader


class Durable(logging.FileHandler):
    def flush(self):
        super().flush()
        os.fsync(self.stream.fileno())


log = logging.getLogger("training")
log.setLevel(logging.INFO)
log.addHandler(Durable(pathlib.Path(tempfile.mkdtemp(), "train.log")))


def report(step, model, loss):
    log.info("step %d loss %.4f", step, loss.item())
    for name, parameter in model.named_parameters():
        log.info("%s %s", name, [round(x, 4) for x in parameter.grad.flatten()[:200].tolist()])


threads()
train(mlp(hidden=128), DataLoader(Vectors(), batch_size=32), after_step=report)
