"""The resources on this machine for the loader of a training process."""

from __future__ import annotations

from gpudoc.facts.host import cpus_usable, memory_free_bytes, shm_free_bytes
from gpudoc.facts.model import Absent
from gpudoc.tune.model.loader import LoaderBounds

# the model, the optimizer and other processes need the rest
SHARE_OF_RAM = 0.5
SHARE_OF_SHM = 0.8


def bounds_here(*, ranks: int = 1, seconds: float = 60.0) -> LoaderBounds:
    """The bounds for one of `ranks` training processes on this machine: its CPUs, half the free memory, most of shm."""
    free, shm = memory_free_bytes(), shm_free_bytes()
    return LoaderBounds(
        cpus=cpus_usable() / ranks,
        ram_bytes=None if isinstance(free, Absent) else int(free * SHARE_OF_RAM / ranks),
        shm_bytes=None if isinstance(shm, Absent) else int(shm * SHARE_OF_SHM / ranks),
        seconds=seconds,
    )
