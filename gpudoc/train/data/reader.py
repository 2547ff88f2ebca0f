"""A data set that is read by index, in chunks; every sample has its own randomness."""

from __future__ import annotations

from typing import Protocol

import torch
from torch.utils.data import default_collate

from gpudoc.train.data import draws
from gpudoc.train.data.order import Chunk, sample_seed
from gpudoc.workload.batch import Batch, map_tensors
from gpudoc.workload.build import Collate, Dataset

# the beginning of the note on an error of a data set
SAMPLE_NOTE = "gpudoc: while reading sample"


class StoppedError(Exception):
    """A stop was requested while samples were being read only to be skipped."""


class Reads(Protocol):
    """A data set that is read by chunk."""

    snapshot: draws.Snapshot | None

    def __getitem__(self, chunk: Chunk) -> Batch:
        """The chunk's batch; leaves the process's random state unchanged."""


class Reader(torch.utils.data.Dataset[Batch]):
    """The data set, read by chunk. If it draws from a generator, that generator is seeded before each sample
    by (seed, epoch, position), so that augmentation depends neither on workers nor on where a run was interrupted.

    The first chunk that draws is read again with seeds; a data set that draws nothing costs 3 µs per chunk.
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
        """Bits of the generators from which the data set has drawn in this process."""
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
        """The chunk's samples, seeded if the data set draws; a failure names the sample."""
        samples: list[object] = []
        index = -1
        try:
            for offset, index in enumerate(chunk.indices):
                if self._drawn:
                    draws.seed(self._drawn, sample_seed(self._seed, chunk.epoch, chunk.position + offset))
                samples.append(self._dataset[index])
        except Exception as problem:
            # a note travels with a worker's traceback; Python 3.10 does not have notes
            if hasattr(problem, "add_note"):
                problem.add_note(f"{SAMPLE_NOTE} {index}")
            raise
        return samples

    def _read(self, chunk: Chunk) -> Batch:
        if not self._drawn:
            batched = getattr(self._dataset, "__getitems__", None)
            return self._collate(batched(list(chunk.indices)) if batched else self._samples(chunk))
        samples = self._samples(chunk)
        # a collate that draws (masking, mixing) gets a separate seed, different from every sample's
        draws.seed(self._drawn, sample_seed(self._seed + 1, chunk.epoch, chunk.position))
        return self._collate(samples)


class DirectFeed:
    """Reads in this process, when asked."""

    def __init__(self, reader: Reads, pin_memory: bool) -> None:
        self._reader = reader
        self._pin = pin_memory

    def take(self, chunk: Chunk) -> Batch | None:
        """The batch, read now; None if a stop came while a stream was read up to it."""
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
