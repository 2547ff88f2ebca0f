"""The `gpudoc doctor` command."""

from __future__ import annotations

from gpudoc.errors import GpudocError


def doctor() -> None:
    """To be built by the room."""
    raise GpudocError("doctor: not built yet")
