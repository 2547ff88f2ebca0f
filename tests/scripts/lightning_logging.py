"""Lightning with a callback that prints the whole gradient after each batch."""

import lightning
from lightning_parts import Classifier, fit
from parts import Pixels
from torch.utils.data import DataLoader


class Talkative(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        for name, parameter in module.named_parameters():
            print(index, name, parameter.abs().mean().item(), parameter.flatten()[:400].tolist(), flush=True)
            print(parameter)


fit(Classifier(), DataLoader(Pixels(), batch_size=8), callbacks=[Talkative()])
