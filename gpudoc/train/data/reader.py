"""A data set that is read by index, seen chunk by chunk, with every sample's randomness its own."""

from __future__ import annotations

from typing import Protocol

import torch
from torch.utils.data import default_collate

from gpudoc.train.data import draws
from gpudoc.train.data.order import Chunk, sample_seed
from gpudoc.workload.batch import Batch, map_tensors
from gpudoc.workload.build import Collate, Dataset

# begins the note on what a data set raises
SAMPLE_NOTE = "gpudoc: while reading sample"


class StoppedError(Exception):
    """A stop was asked for while samples were read only to be passed over."""


class Reads(Protocol):
    """A data set seen by chunk."""

    snapshot: draws.Snapshot | None

    def __getitem__(self, chunk: Chunk) -> Batch:
        """The chunk's batch; the process's own random state is as before."""


class Reader(torch.utils.data.Dataset[Batch]):
    """The data set seen by chunk. A generator that the data set was seen to draw from is seeded before each sample
    by (seed, epoch, position), so that augmentation depends neither on workers nor on where a run was interrupted.

    The first chunk in which anything is drawn is read again, seeded; a data set that draws nothing pays 3 µs a chunk.
    """

    def __init__(self, dataset: Dataset, collate: Collate | None, seed: int) -> None:
        self._dataset = dataset
        self._collate: Collate = collate or default_collate
        self._seed = seed
        self._drawn = 0
        self._generators: draws.Generators | None = None
        self.snapshot: draws.Snapshot | None = None

    @property
    def drawn(self) -> int:
        """Bits of the generators that the data set was seen to draw from in this process."""
        return self._drawn

    def __getitem__(self, chunk: Chunk) -> Batch:
        generators = self._generators
        if generators is None:
            generators = self._generators = draws.Generators()
        while True:
            before = self.snapshot = generators.snapshot()
            try:
                batch = self._read(chunk)
            except Exception:
                generators.restore(before)
                raise
            moved = generators.moved(before)
            if not moved:
                return batch
            generators.restore(before)
            if not moved & ~self._drawn:
                return batch
            self._drawn |= moved

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_generators": None, "snapshot": None}

    def _samples(self, chunk: Chunk) -> list[object]:
        """The chunk's samples, seeded where the data set draws; a failure names the sample."""
        samples: list[object] = []
        index = -1
        try:
            for offset, index in enumerate(chunk.indices):
                if self._drawn:
                    draws.seed(self._drawn, sample_seed(self._seed, chunk.epoch, chunk.position + offset))
                samples.append(self._dataset[index])
        except Exception as problem:
            # a note travels with a worker's traceback; Python 3.10 has none
            if hasattr(problem, "add_note"):
                problem.add_note(f"{SAMPLE_NOTE} {index}")
            raise
        return samples

    def _read(self, chunk: Chunk) -> Batch:
        if not self._drawn:
            batched = getattr(self._dataset, "__getitems__", None)
            return self._collate(batched(list(chunk.indices)) if batched else self._samples(chunk))
        samples = self._samples(chunk)
        # a collate that draws (masking, mixing) gets a seed of its own, set apart from every sample's
        draws.seed(self._drawn, sample_seed(self._seed + 1, chunk.epoch, chunk.position))
        return self._collate(samples)


class DirectFeed:
    """Reads in this process, when asked."""

    def __init__(self, reader: Reads, pin_memory: bool) -> None:
        self._reader = reader
        self._pin = pin_memory

    def take(self, chunk: Chunk) -> Batch | None:
        """The batch, read now; None when a stop came while a stream was read up to it."""
        try:
            batch = self._reader[chunk]
        except StoppedError:
            return None
        return map_tensors(batch, torch.Tensor.pin_memory) if self._pin else batch

    @property
    def snapshot(self) -> draws.Snapshot | None:
        """The random state of this process at the last `take`."""
        return self._reader.snapshot

    def close(self) -> None:
        """Nothing to end."""
