"""A workload with a costly input pipeline: an image folder read with Pillow, and a small convolutional net.

`python -m gpudoc.workload.images FOLDER` draws such a folder: shapes of random colour, place and size on noise.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import nn

from gpudoc.control_characters import escape_line
from gpudoc.errors import GpudocError
from gpudoc.shell import quote_path

CLASSES = ("circle", "square", "triangle", "cross", "ring", "bars", "diamond", "dots")
# the folder of the built-in workload: if it is missing, a few pictures are drawn within seconds
BUILT_IN = Path("images-data")
_PER_CLASS, _FEW_PER_CLASS = 250, 100
_SUFFIXES = (".jpg", ".jpeg", ".png")


class ImageFolder(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """root/<class>/*.jpg -> (float32[3, size, size], class index); augmented by random crop and flip."""

    def __init__(self, root: str, size: int = 96, augment: bool = True) -> None:
        folder = Path(root)
        if not folder.is_dir() and folder.parent == BUILT_IN:
            draw_once(BUILT_IN)
        if not folder.is_dir():
            raise GpudocError(
                f"{root}: no such folder of images",
                hint=f"python -m gpudoc.workload.images {quote_path(folder.parent or root)}",
            )
        self.classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
        self.size = size
        self.augment = augment
        self._files = [
            (path, label)
            for label, name in enumerate(self.classes)
            for path in sorted((folder / name).iterdir())
            if path.suffix.lower() in _SUFFIXES
        ]

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self._files[index]
        with Image.open(path) as picture:
            picture = self._crop(picture.convert("RGB"))
        pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
        image = pixels.view(self.size, self.size, 3).permute(2, 0, 1).float() / 127.5 - 1.0
        return image, label

    def fingerprint(self) -> str:
        """The names of all files, since the pictures behind them are not hashed."""
        return " ".join(path.name for path, _ in self._files[:: max(1, len(self._files) // 64)])

    def _crop(self, picture: Image.Image) -> Image.Image:
        edge = min(picture.size)
        if not self.augment:
            return picture.resize((self.size, self.size), Image.Resampling.BILINEAR)
        side = max(8, int(edge * (0.6 + 0.4 * torch.rand(()).item())))
        left = int(torch.randint(0, picture.width - side + 1, ()).item())
        top = int(torch.randint(0, picture.height - side + 1, ()).item())
        box = (left, top, left + side, top + side)
        cropped = picture.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box)
        return cropped.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if torch.rand(()).item() < 0.5 else cropped


def build_model(dataset: ImageFolder, width: int = 32) -> nn.Module:
    """Three convolution stages and a linear head: float32[batch, 3, size, size] -> float32[batch, classes]."""

    def stage(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )

    return nn.Sequential(
        stage(3, width),
        stage(width, 2 * width),
        stage(2 * width, 4 * width),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, len(dataset.classes)),
    )


def draw_folder(folder: Path, *, per_class: int, size: int = 256, seed: int = 0) -> int:
    """Write train/ and held_out/ (one in five) with `per_class` JPEG pictures per class; returns how many."""
    generator = random.Random(seed)
    for label in CLASSES:
        for index in range(per_class):
            split = "held_out" if index % 5 == 4 else "train"
            target = folder / split / label
            target.mkdir(parents=True, exist_ok=True)
            draw_picture(label, size, generator).save(target / f"{label}-{index:05d}.jpg", quality=90)
    return per_class * len(CLASSES)


def draw_once(folder: Path) -> None:
    """Draw the built-in workload's folder, whole or not at all; if two processes draw it, the first one's counts."""
    whole = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        draw_folder(whole, per_class=_FEW_PER_CLASS)
        whole.chmod(0o755)
        with contextlib.suppress(OSError):
            whole.rename(folder)
    finally:
        shutil.rmtree(whole, ignore_errors=True)


def draw_picture(label: str, size: int, generator: random.Random) -> Image.Image:
    """One picture of the shape `label` on coarse noise."""
    noise = bytes(generator.randrange(40, 216) for _ in range(3 * 32 * 32))
    picture = Image.frombytes("RGB", (32, 32), noise).resize((size, size), Image.Resampling.BILINEAR)
    draw = ImageDraw.Draw(picture)
    reach = generator.randrange(size // 6, size // 3)
    x, y = generator.randrange(reach, size - reach), generator.randrange(reach, size - reach)
    colour = tuple(generator.randrange(256) for _ in range(3))
    _draw_shape(draw, label, (x, y, reach), colour)
    return picture


def _draw_shape(draw: ImageDraw.ImageDraw, label: str, place: tuple[int, int, int], colour: tuple[int, ...]) -> None:
    x, y, r = place
    box = (x - r, y - r, x + r, y + r)
    match label:
        case "circle":
            draw.ellipse(box, fill=colour)
        case "square":
            draw.rectangle(box, fill=colour)
        case "triangle":
            draw.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], fill=colour)
        case "diamond":
            draw.polygon([(x, y - r), (x - r, y), (x, y + r), (x + r, y)], fill=colour)
        case "ring":
            draw.ellipse(box, outline=colour, width=max(2, r // 4))
        case "cross":
            draw.line((x - r, y - r, x + r, y + r), fill=colour, width=max(2, r // 3))
            draw.line((x - r, y + r, x + r, y - r), fill=colour, width=max(2, r // 3))
        case "bars":
            for step in range(-r, r + 1, max(1, r // 2)):
                draw.rectangle((x + step - 3, y - r, x + step + 3, y + r), fill=colour)
        case _:
            for dx in (-r, 0, r):
                for dy in (-r, 0, r):
                    draw.ellipse((x + dx - r // 4, y + dy - r // 4, x + dx + r // 4, y + dy + r // 4), fill=colour)


def main(arguments: list[str]) -> int:
    """Draw a folder of pictures: `python -m gpudoc.workload.images FOLDER [--per-class N]`; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gpudoc.workload.images", description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--per-class", type=int, default=_PER_CLASS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        count = draw_folder(options.folder, per_class=options.per_class, seed=options.seed)
    except OSError as problem:
        sys.stderr.write(f"gpudoc: {escape_line(options.folder)}: cannot be written: {problem.strerror}\n")
        return 2
    sys.stderr.write(f"{count} pictures under {escape_line(options.folder)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
