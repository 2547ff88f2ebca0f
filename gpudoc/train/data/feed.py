"""Feeds give a step its chunks, read ahead by workers or on demand by this process; they can start at any step."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Protocol, cast

import torch
from torch.utils.data import DataLoader

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.loader_workers import shorten_socket_paths, start_worker, start_workers
from gpudoc.train.data.order import Chunk, Order
from gpudoc.train.data.reader import DirectFeed, Reads
from gpudoc.train.data.stream import StreamReader
from gpudoc.train.stop import Stop, defer_signals, ignore_in_worker
from gpudoc.workload.batch import Batch

_POLL_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSettings:
    """The settings of the loader."""

    num_workers: int = 0
    prefetch_factor: int = 2
    pin_memory: bool = False


class Feed(Protocol):
    """A source of batches in the order of the chunks."""

    def take(self, chunk: Chunk) -> Batch | None:
        """The batch of `chunk`, which must be the next one; None if a stop was requested while waiting."""

    def close(self) -> None:
        """End the workers."""


class WorkerFeed:
    """Reads ahead in worker processes, across epoch boundaries; waits in short intervals to notice a stop."""

    def __init__(self, reader: Reads, chunks: Iterator[Chunk], settings: LoaderSettings, stop: Stop) -> None:
        self._stop = stop
        self._sent: deque[Chunk] = deque()
        self._others = set(multiprocessing.active_children())
        self._settings = settings
        shorten_socket_paths()
        loader: DataLoader[Batch] = DataLoader(
            cast("torch.utils.data.Dataset[Batch]", reader),
            sampler=cast("Sequence[int]", _Sent(chunks, self._sent)),
            batch_size=None,
            num_workers=settings.num_workers,
            prefetch_factor=settings.prefetch_factor,
            pin_memory=settings.pin_memory,
            worker_init_fn=_start_worker,
            timeout=_POLL_S,
            # each iter() draws a base seed, which must not come from the generator that the model draws from
            generator=torch.Generator().manual_seed(0),
            collate_fn=_as_it_is,
        )
        try:
            with defer_signals():
                self._batches = start_workers(loader, pins=settings.pin_memory)
            # torch's SIGCHLD handler would raise at any line of gpudoc; `take` sees a worker's death at its next poll
            _leave_unwatched(self._batches)
        except Exception as problem:
            # a remaining worker ignores the SIGTERM that multiprocessing sends at exit, which then waits for it forever
            for worker in self._started():
                worker.kill()
            if (explained := _explain(problem)) is problem:
                raise
            raise explained from problem
        self._workers = self._started()

    def take(self, chunk: Chunk) -> Batch | None:
        """The next batch; GpudocError if a worker died or the data set raised."""
        while True:
            if self._stop.asked:
                return None
            try:
                batch: Batch = next(self._batches)
            except StopIteration:
                raise RuntimeError("the loader ended before training did") from None
            except Exception as problem:
                if self._asked_meanwhile():
                    return None
                if "DataLoader timed out" in str(problem):
                    continue
                explained = _explain(problem)
                if explained is problem:
                    raise
                raise explained from problem
            sent = self._sent.popleft()
            if sent != chunk:
                raise RuntimeError(f"the loader is at {sent}, the training at {chunk}")
            return batch

    def _asked_meanwhile(self) -> bool:
        return self._stop.asked

    def close(self) -> None:
        """Kill the workers: the samples that they still read are no longer needed."""
        for worker in self._workers:
            worker.kill()
        shut_down = getattr(self._batches, "_shutdown_workers", None)
        if shut_down is not None:
            shut_down()
        for worker in self._workers:
            worker.join(5)

    def _started(self) -> set[BaseProcess]:
        return set(multiprocessing.active_children()) - self._others


class _Sent:
    """The chunks; remembers each one sent to the workers, since batches come back in the same order."""

    def __init__(self, chunks: Iterator[Chunk], sent: deque[Chunk]) -> None:
        self._chunks = chunks
        self._sent = sent

    def __iter__(self) -> Iterator[Chunk]:
        for chunk in self._chunks:
            self._sent.append(chunk)
            yield chunk


class Feeds:
    """Opens feeds; after a rescue opens another one at a different position and with a different micro batch."""

    def __init__(self, reader: Reads, settings: LoaderSettings, stop: Stop) -> None:
        self.reader = reader
        self.settings = settings
        self._stop = stop
        if isinstance(reader, StreamReader):
            reader.should_stop = lambda: stop.asked

    def place(self) -> bytes | None:
        """The position of a stream that keeps its place; None for other data sets, or if workers read ahead."""
        ahead = self.settings.num_workers > 0
        return self.reader.place() if isinstance(self.reader, StreamReader) and not ahead else None

    def open(self, order: Order, first_step: int, end_step: int) -> Feed:
        """A feed of the chunks of the steps [first_step, end_step)."""
        if self.settings.num_workers == 0:
            return DirectFeed(self.reader, self.settings.pin_memory)
        return WorkerFeed(self.reader, order.walk(first_step, end_step), self.settings, self._stop)


def _leave_unwatched(iterator: object) -> None:
    """Tell torch not to report these workers' deaths; otherwise its SIGCHLD handler raises."""
    remove = getattr(torch._C, "_remove_worker_pids", None)
    if remove is not None and getattr(iterator, "_worker_pids_set", False):
        remove(id(iterator))
        iterator._worker_pids_set = False  # type: ignore[attr-defined]


def _start_worker(number: int) -> None:
    ignore_in_worker()
    start_worker(number)


def _as_it_is(batch: Batch) -> Batch:
    return batch


def _explain(problem: Exception) -> Exception:
    text = str(problem)
    # a worker that dies while it sends a batch closes the socket that carries the tensors' descriptors
    cut_off = isinstance(problem, ConnectionError | EOFError)
    if cut_off or "exited unexpectedly" in text or "killed by signal" in text:
        text = text or "its connection broke"
        hint = "--num-workers 0 shows the error itself; a full /dev/shm or too little memory also kills workers"
        return GpudocError(f"a loader worker died: {text.splitlines()[0]}", hint=hint, exit_code=ExitCode.BAD_ANSWER)
    return problem
