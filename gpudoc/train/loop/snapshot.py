"""The content of a GPU's memory when it ran out, as a file in the run's folder that `gpudoc doctor FILE` reads."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch

from gpudoc.patterns import Pattern
from gpudoc.train.loop.census import owned
from gpudoc.train.step.step import Stepper
from gpudoc.units import parse_size

_WANTED = Pattern(r"Tried to allocate ([\d.]+ [KMGT]iB)")
_FREE = Pattern(r"of which ([\d.]+ (?:[KMGT]i)?B) is free")


class Snapshots:
    """Keeps the newest snapshot of this rank in the folder of the run."""

    def __init__(self, folder: Path, rank: int, stepper: Stepper) -> None:
        self._path = folder / f"memory-rank{rank}.pickle"
        self._stepper = stepper

    def take(self, problem: BaseException) -> Path | None:
        """Write the content of the GPU's memory after `problem`; None on a CPU or if that fails.

        The allocator's blocks are always included, the origin of each block only if torch was recording it
        (torch.cuda.memory._record_memory_history).
        """
        device = self._stepper.parts.device
        if device.type != "cuda":
            return None
        beside = self._path.with_suffix(".tmp")
        try:
            content = dict(torch.cuda.memory._snapshot(device))
            content["gpudoc"] = self._known(str(problem), device)
            with beside.open("wb") as stream:
                pickle.dump(content, stream, protocol=4)
            beside.replace(self._path)
        except (OSError, RuntimeError, TypeError, AttributeError, pickle.PicklingError):
            # the original error matters more, and it is reported
            beside.unlink(missing_ok=True)
            return None
        return self._path

    def _known(self, message: str, device: torch.device) -> Mapping[str, object]:
        """Facts missing from torch's snapshot: the failed request, the free memory, and the owners of the blocks."""
        wanted, free = _WANTED.search(message), _FREE.search(message)
        return {
            "device": device.index or 0,
            "wanted_bytes": None if wanted is None else parse_size(wanted[1]),
            "device_free_bytes": None if free is None else parse_size(free[1]),
            "owners": owned(self._stepper),
        }
