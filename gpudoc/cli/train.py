"""The `gpudoc train` command."""

from __future__ import annotations

from gpudoc.errors import GpudocError


def train() -> None:
    """To be built by the room."""
    raise GpudocError("train: not built yet")
