"""The quickstart: a byte-level transformer on text of every Python installation, its standard library."""

from __future__ import annotations

import bz2
import hashlib
import math
import sysconfig
import zlib
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from gpudoc.errors import GpudocError

Split = Literal["train", "held_out"]

_HELD_OUT_EVERY = 20
_SKIPPED = ("site-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__", "config-")


class Text(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Windows of `context` bytes of Python source: {'inputs': int64[context], 'targets': int64[context]}."""

    def __init__(self, context: int = 64, split: Split = "train", limit: int | None = None) -> None:
        if split not in ("train", "held_out"):
            raise ValueError(f"split is 'train' or 'held_out', not {split!r}")
        self.context = context
        self._text = source_text(split)
        count = (len(self._text) - 1) // context
        self._count = count if limit is None else min(limit, count)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if not 0 <= index < self._count:
            raise IndexError(index)
        start = index * self.context
        window = torch.frombuffer(self._text, dtype=torch.uint8, offset=start, count=self.context + 1).long()
        return {"inputs": window[:-1], "targets": window[1:]}

    def fingerprint(self) -> str:
        """A digest of the text, since other Python versions contain different sources."""
        return hashlib.sha256(self._text).hexdigest()[:16]

    def report(self, mean_loss: float) -> Mapping[str, float]:
        """Bits per byte for a mean loss in nats, and those of compressors and byte frequencies on the same text."""
        seen = bytes(self._text[: self._count * self.context + 1])
        return {"bits_per_byte": mean_loss / math.log(2), **baselines(seen)}


def baselines(text: bytes) -> Mapping[str, float]:
    """Bits per byte of `text` by byte frequencies alone, by zlib and by bz2 (each over the whole text at once)."""
    total = len(text)
    entropy = -sum(n / total * math.log2(n / total) for n in Counter(text).values())
    return {
        "byte_frequencies_bits_per_byte": entropy,
        "zlib_bits_per_byte": 8 * len(zlib.compress(text, 9)) / total,
        "bz2_bits_per_byte": 8 * len(bz2.compress(text, 9)) / total,
    }


@lru_cache(maxsize=2)
def source_text(split: Split) -> bytearray:
    """The standard library's .py files one after the other; every twentieth, by a hash of its name, is held out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    text = bytearray()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if any(part.startswith(_SKIPPED) for part in name.split("/")):
            continue
        held_out = int(hashlib.sha256(name.encode()).hexdigest(), 16) % _HELD_OUT_EVERY == 0
        if held_out == (split == "held_out"):
            text += path.read_bytes()
    if len(text) < 1 << 16:
        raise GpudocError(
            f"this Python has no source files to learn from: {root}",
            hint="use your own data: gpudoc train --model cfg.yaml",
        )
    return text


class Block(nn.Module):
    """Pre-norm attention and feed-forward, both added to the stream of float[batch, context, hidden_dim]."""

    def __init__(self, hidden_dim: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.attention_norm = nn.LayerNorm(hidden_dim)
        self.qkv = nn.Linear(hidden_dim, 3 * hidden_dim, bias=False)
        self.project = nn.Linear(hidden_dim, hidden_dim, bias=False)
        self.feed_norm = nn.LayerNorm(hidden_dim)
        self.feed = nn.Sequential(
            nn.Linear(hidden_dim, 4 * hidden_dim), nn.GELU(), nn.Linear(4 * hidden_dim, hidden_dim)
        )

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        """float[batch, context, hidden_dim] -> the same shape."""
        batch, context, hidden_dim = stream.shape
        heads = self.qkv(self.attention_norm(stream)).view(batch, context, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        stream = stream + self.project(mixed.transpose(1, 2).reshape(batch, context, hidden_dim))
        fed: torch.Tensor = self.feed(self.feed_norm(stream))
        return stream + fed


class ByteTransformer(nn.Module):
    """A causal transformer over bytes; called with targets it returns its mean loss in nats per byte."""

    def __init__(self, hidden_dim: int, n_layers: int, n_heads: int, context: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, hidden_dim)
        self.position = nn.Embedding(context, hidden_dim)
        self.blocks = nn.ModuleList(Block(hidden_dim, n_heads) for _ in range(n_layers))
        self.norm = nn.LayerNorm(hidden_dim)
        self.head = nn.Linear(hidden_dim, 256, bias=False)
        self.apply(_initialise)

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        """int64[batch, context] twice -> {'loss': scalar}."""
        stream = self.embed(inputs) + self.position.weight[: inputs.shape[1]]
        for block in self.blocks:
            stream = block(stream)
        logits = self.head(self.norm(stream))
        return {"loss": functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())}


def build_model(hidden_dim: int = 128, n_layers: int = 3, n_heads: int = 4, context: int = 64) -> ByteTransformer:
    """The quickstart's model; ValueError if the heads do not divide the width."""
    if hidden_dim % n_heads:
        raise ValueError(f"hidden_dim {hidden_dim} is not a multiple of n_heads {n_heads}")
    return ByteTransformer(hidden_dim, n_layers, n_heads, context)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
