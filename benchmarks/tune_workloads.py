"""The three models of the tuning benchmarks: an MLP, a conv net and a transformer, as config files with a module."""

from __future__ import annotations

from pathlib import Path

import yaml

MODULE = '''
import torch
from torch import nn


class Random(torch.utils.data.Dataset):
    """`count` samples: vectors, pictures or byte sequences, made on request from a seed."""

    def __init__(self, kind, count):
        self.kind, self.count = kind, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if not 0 <= index < self.count:
            raise IndexError(index)
        generator = torch.Generator().manual_seed(index % 64)
        if self.kind == "mlp":
            return torch.randn(1024, generator=generator), index % 10
        if self.kind == "conv":
            return torch.randn(3, 64, 64, generator=generator), index % 10
        text = torch.randint(0, 256, (129,), generator=generator)
        return text[:-1], text[1:]


class Transformer(nn.Module):
    def __init__(self, width=192, layers=4, heads=6, context=128):
        super().__init__()
        self.embed, self.place = nn.Embedding(256, width), nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, dropout=0.0)
        self.body = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, 256)

    def forward(self, text):
        return self.head(self.body(self.embed(text) + self.place.weight[: text.shape[1]])).transpose(1, 2)


def build(kind):
    if kind == "mlp":
        return nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 10))
    if kind == "conv":
        def block(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2))
        return nn.Sequential(block(3, 32), block(32, 64), block(64, 128), nn.Flatten(), nn.Linear(128 * 64, 10))
    return Transformer()
'''

KINDS = ("mlp", "conv", "transformer")


def write_workload(folder: Path, kind: str, count: int = 200_000, **train: object) -> Path:
    """cfg.yaml of one of `KINDS` in `folder`; `train` adds to its training section."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tune_models.py").write_text(MODULE)
    config = {
        "model": {"target": "tune_models:build", "args": {"kind": kind}},
        "data": {"target": "tune_models:Random", "args": {"kind": kind, "count": count}},
        "loss": {"target": "torch.nn:CrossEntropyLoss"},
        "optimizer": {"target": "torch.optim:AdamW", "args": {"lr": 1e-4}},
        "train": {"reference_batch": 8, "precision": "fp32", **train},
    }
    path = folder / f"{kind}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path
