"""A decoder shaped like Llama: RMS norms, rotary positions, gated feed-forward, untied head; sizes as one asks."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Causal attention with rotary positions."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        angles = torch.outer(torch.arange(length), 10000.0 ** -(torch.arange(0, width // heads, 2) / (width // heads)))
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def turned(self, values: torch.Tensor) -> torch.Tensor:
        """Values with their pairs turned by the angles of their positions."""
        first, second = values.chunk(2, -1)
        cosine, sine = (table[: values.shape[-2]].to(values.dtype) for table in (self.cosine, self.sine))
        return torch.cat((first * cosine - second * sine, first * sine + second * cosine), -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One layer's attention."""
        batch, length, width = x.shape
        parts = (
            each(x).view(batch, length, self.heads, -1).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        query, key, value = parts
        mixed = functional.scaled_dot_product_attention(self.turned(query), self.turned(key), value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and a gated feed-forward part, each behind a norm and beside a residual."""

    def __init__(self, width: int, heads: int, inner: int, length: int) -> None:
        super().__init__()
        self.attention_norm, self.inner_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads, length)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One layer."""
        x = x + self.attention(self.attention_norm(x))
        y = self.inner_norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """Token ids to the mean loss of the next tokens."""

    def __init__(self, layers: int, width: int, heads: int, inner: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, inner, length) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The mean loss."""
        x = self.embed(tokens[:, :-1])
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class Tokens(torch.utils.data.Dataset):
    """Rows of zeros, one longer than what is read at once."""

    def __init__(self, length: int, rows: int = 64) -> None:
        self.length, self.rows = length, rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, place: int) -> torch.Tensor:
        return torch.zeros(self.length + 1, dtype=torch.long)
