"""The `gpudoc bench` command."""

from __future__ import annotations

from gpudoc.errors import GpudocError


def bench() -> None:
    """To be built by the room."""
    raise GpudocError("bench: not built yet")
