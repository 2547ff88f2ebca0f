"""A timm model without weights, timm's own loader and optimizer, and the loop of its training script in short."""

import io

import timm
import torch
from parts import ADVISED, FIXED, Jpegs, forever, threads
from PIL import Image
from timm.data import create_loader
from timm.optim import create_optimizer_v2

FIXED_WORKERS = ADVISED if FIXED else 0


class Pictures(Jpegs):
    """Pictures for a transform that the loader sets."""

    transform = None

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.files[index % 16])).convert("RGB")
        return self.transform(image), index % 10


def run(dataset, batch_size=16, workers=FIXED_WORKERS):
    threads()
    model = timm.create_model("resnet10t", pretrained=False, num_classes=10)
    loader = create_loader(
        dataset, input_size=(3, 64, 64), batch_size=batch_size, is_training=True, num_workers=workers,
        use_prefetcher=False, persistent_workers=workers > 0, pin_memory=False,
    )  # fmt: skip
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-4)
    loss_fn = torch.nn.CrossEntropyLoss()
    for inputs, targets in forever(loader):
        loss = loss_fn(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
