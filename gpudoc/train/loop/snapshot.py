"""What a GPU's memory held when it ran out, as a file in the run's folder that `gpudoc doctor FILE` reads."""

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
        """Write what the GPU's memory holds now that it ran out with `problem`; None on a CPU or when that fails.

        The allocator's blocks are always known. Where each was made is in it when that was being recorded
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
            # the error that it is about is the one to tell, and it is told
            beside.unlink(missing_ok=True)
            return None
        return self._path

    def _known(self, message: str, device: torch.device) -> Mapping[str, object]:
        """What the snapshot does not say: the request that failed, what was left, and whose the blocks are."""
        wanted, free = _WANTED.search(message), _FREE.search(message)
        return {
            "device": device.index or 0,
            "wanted_bytes": None if wanted is None else parse_size(wanted[1]),
            "device_free_bytes": None if free is None else parse_size(free[1]),
            "owners": owned(self._stepper),
        }
