"""What the training scripts here share: a clock that ends them, a speed file, small models and data made in memory."""

import ctypes
import io
import json
import os
import pathlib
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset

LASTS_S = float(os.environ.get("SCRIPT_SECONDS", "600"))
# or until this file is there
UNTIL = os.environ.get("SCRIPT_UNTIL")
SPEED_FILE = os.environ.get("SPEED_FILE")
# the loader setting that mends a script, tried by the comparison of estimated and real gains
FIXED = os.environ.get("FIXED") == "1"
# the number of workers that was advised
ADVISED = int(os.environ.get("ADVISED_WORKERS", "1"))
BEGAN = time.monotonic()


class Pace:
    """Counts steps, and writes how many and when, so that a benchmark can read the speed of any stretch of time."""

    def __init__(self):
        self.steps = 0
        self.next_s = 0.0

    def step(self):
        self.steps += 1
        now = time.monotonic()
        if SPEED_FILE and now >= self.next_s:
            self.next_s = now + 0.25
            with pathlib.Path(SPEED_FILE).open("a") as file:
                file.write(json.dumps([now, self.steps]) + "\n")

    def time_is_up(self):
        return time.monotonic() - BEGAN > LASTS_S or bool(UNTIL and pathlib.Path(UNTIL).exists())


PACE = Pace()


def forever(loader):
    """Epoch after epoch of one loader, until the time is up."""
    while True:
        for batch in loader:
            yield batch
            PACE.step()
            if PACE.time_is_up():
                return


def one_arena():
    """Keep glibc from growing with every exchange over gloo, so that what is planted is the only thing wrong."""
    m_arena_max = -8
    ctypes.CDLL(None).mallopt(m_arena_max, 1)


def threads(count=1):
    torch.set_num_threads(count)
    torch.manual_seed(0)


def conv(width=16, classes=10, size=64):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2), nn.ReLU(), nn.Conv2d(width, width, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(width * 16, classes),
    )  # fmt: skip


def mlp(inputs=64, hidden=512, outputs=10, depth=3):
    layers = [nn.Linear(inputs, hidden), nn.ReLU()]
    for _ in range(depth - 2):
        layers += [nn.Linear(hidden, hidden), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden, outputs))


class Vectors(Dataset):
    """Ready tensors: costs next to nothing."""

    def __init__(self, length=4096, inputs=64, classes=10):
        self.inputs = torch.randn(length, inputs)
        self.targets = torch.randint(0, classes, (length,))

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index], self.targets[index]


class Pixels(Dataset):
    """Ready images."""

    def __init__(self, length=2048, size=64, distinct=128):
        self.images = torch.randn(distinct, 3, size, size)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.images[index % len(self.images)], index % 10


class Jpegs(Dataset):
    """JPEG files held in memory: decoding and resizing is the work, `rounds` times."""

    def __init__(self, length=2048, side=256, size=64, rounds=1):
        made = np.random.default_rng(0)
        self.files = []
        for _ in range(16):
            small = made.integers(0, 255, (side // 8, side // 8, 3), dtype=np.uint8)
            buffer = io.BytesIO()
            Image.fromarray(small).resize((side, side), Image.BICUBIC).save(buffer, "JPEG", quality=90)
            self.files.append(buffer.getvalue())
        self.length, self.size, self.rounds = length, size, rounds

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        for _ in range(self.rounds):
            image = Image.open(io.BytesIO(self.files[index % 16])).convert("RGB").resize((self.size, self.size))
        pixels = torch.from_numpy(np.asarray(image, dtype=np.float32) / 255).permute(2, 0, 1)
        return pixels.contiguous(), index % 10


def train(model, loader, optimizer=None, after_step=None):
    """A plain loop."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-4)
    loss_fn = nn.CrossEntropyLoss()
    for step, (inputs, targets) in enumerate(forever(loader)):
        loss = loss_fn(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if after_step is not None:
            after_step(step, model, loss)
