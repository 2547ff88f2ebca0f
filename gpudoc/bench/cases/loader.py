"""The cost of one batch from a DataLoader worker: only collate and transport, without reading or decoding."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from gpudoc.bench.model import Case, RawReading
from gpudoc.bench.sampling import Bench, Row, sample_point
from gpudoc.process.loader_workers import shorten_socket_paths, start_worker
from gpudoc.units import KIB

if TYPE_CHECKING:
    from torch import Tensor

SAMPLE_BYTES = 256 * KIB
BATCH = 16
BATCHES_PER_SAMPLE = 4
ENDLESS = 10**9


class ReadySamples:
    """A map-style data set whose every sample is the same ready tensor of SAMPLE_BYTES."""

    def __init__(self) -> None:
        import torch

        self._sample = torch.rand(SAMPLE_BYTES // 4)

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> Tensor:
        return self._sample


def run(bench: Bench) -> Iterator[RawReading]:
    """Rows loader_start (ms to the first batch) and loader_batch (ms each) at 0, 1 and 2 workers (quick: 0 and 1)."""
    shorten_socket_paths()
    counts = [0, 1] + ([2] if bench.plan.threads >= 2 and not bench.plan.quick else [])
    seconds = bench.point_s(2 * len(counts) - 1)
    for num_workers in counts:
        parameters = {"workers": num_workers, "bytes": BATCH * SAMPLE_BYTES}
        if num_workers:
            start = Row(name="loader_start", unit="ms", parameters={"workers": num_workers}, better="lower")
            yield sample_point(bench, start, functools.partial(_start_ms, num_workers), seconds)
        row = Row(name="loader_batch", unit="ms", parameters=parameters, better="lower")
        batches = _batches(num_workers)
        yield sample_point(bench, row, _batch_ms(batches), seconds)
        del batches


def _batches(num_workers: int) -> Iterator[Tensor]:
    from torch.utils.data import DataLoader

    # a sequential sampler over an endless set, because a shuffled one would first make a list of all indices
    samples: Any = ReadySamples()
    return iter(DataLoader(samples, batch_size=BATCH, num_workers=num_workers, worker_init_fn=start_worker))


def _start_ms(num_workers: int) -> float:
    started = time.perf_counter()
    batches = _batches(num_workers)
    next(batches)
    elapsed = time.perf_counter() - started
    del batches  # ends the workers, outside the measured time
    return elapsed * 1e3


def _batch_ms(batches: Iterator[Tensor]) -> Callable[[], float]:
    def once() -> float:
        started = time.perf_counter()
        for _ in range(BATCHES_PER_SAMPLE):
            next(batches)
        return (time.perf_counter() - started) * 1e3 / BATCHES_PER_SAMPLE

    return once


CASE = Case(
    name="loader",
    meaning="round trip of a DataLoader batch",
    share=1.2,
    absent_because=lambda _bench: "",
    run=run,
    rows={
        "loader_start": (
            "The time from creating a DataLoader's iterator to its first batch: the cost of workers at the start of "
            "every epoch, unless they are persistent."
        ),
        "loader_batch": (
            "The cost of delivering one batch, by number of workers: collating and transport, without reading. If a "
            "step is shorter than this, it waits for the loader, however fast the data set is."
        ),
    },
)
