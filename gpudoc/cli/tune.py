"""The `gpudoc tune` command."""

from __future__ import annotations

from gpudoc.errors import GpudocError


def tune() -> None:
    """To be built by the room."""
    raise GpudocError("tune: not built yet")
