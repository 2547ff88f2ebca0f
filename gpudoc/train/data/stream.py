"""Data sets that can only be iterated: read from the beginning; each sample's randomness depends on its position."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Protocol, cast, runtime_checkable

import torch
from torch.utils.data import default_collate

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.shortage import is_out_of_memory
from gpudoc.train.data import draws
from gpudoc.train.data.order import ENDLESS, Chunk, sample_seed
from gpudoc.train.data.reader import Reader, Reads, StoppedError
from gpudoc.workload.batch import Batch
from gpudoc.workload.build import Collate, Dataset, Workload, is_stream

# attributes that are not sent to a worker that is not a fork: it opens the stream itself
_NOT_SENT: Mapping[str, object] = {
    "snapshot": None,
    "should_stop": None,
    "_generators": None,
    "_samples": None,
    "_epoch": -1,
}
_ALL = draws.PYTHON | draws.NUMPY | draws.TORCH


@runtime_checkable
class KeepsPlace(Protocol):
    """A data set that can save its position, and continue from there at its next `iter()`."""

    def state_dict(self) -> Mapping[str, object]:
        """The position after the last returned sample."""

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Set the position."""


def keeps_place(dataset: Dataset) -> bool:
    """Whether a data set has state_dict and load_state_dict."""
    return isinstance(dataset, KeepsPlace)


class StreamReader(torch.utils.data.Dataset[Batch]):
    """An iterable data set read by chunk. The indices are positions in the stream; positions in between are skipped.

    Every rank reads the same stream and keeps its own positions, so the samples of a step do not depend on the number
    of ranks. A stream without a length begins again when it ends. `set_epoch(pass)` is called if it exists.
    """

    def __init__(self, dataset: Dataset, collate: Collate | None, seed: int, length: int = ENDLESS) -> None:
        self._dataset = dataset
        self._collate: Collate = collate or default_collate
        self._seed = seed
        self._length = length
        self._samples: Iterator[object] | None = None
        self._epoch = self._pass = -1
        self._position = self._pass_began = 0
        self._step = -1
        self._kept: dict[int, object] = {}
        self._last: object = None
        self._generators: draws.Generators | None = None
        self._place: Mapping[str, object] | None = None
        self.snapshot: draws.Snapshot | None = None
        self.should_stop: Callable[[], bool] | None = None

    @property
    def keeps_place(self) -> bool:
        """Whether the data set has state_dict and load_state_dict."""
        return keeps_place(self._dataset)

    def __getitem__(self, chunk: Chunk) -> Batch:
        generators = self._generators
        if generators is None:
            generators = self._generators = draws.Generators()
        before = self.snapshot = generators.snapshot()
        try:
            if chunk.step != self._step:
                self._step = chunk.step
                self._kept.clear()
            samples = [self._sample(chunk, index) for index in chunk.indices]
            draws.seed(_ALL, sample_seed(self._seed + 1, chunk.epoch, chunk.position))
            return self._collate(samples)
        finally:
            generators.restore(before)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, **_NOT_SENT, "_kept": {}}

    def place(self) -> bytes | None:
        """The position of the stream, as a file that torch.load reads with weights_only; None if the data set cannot
        give it, or gives objects that such a file may not hold."""
        if not isinstance(self._dataset, KeepsPlace) or self._samples is None:
            return None
        place = {
            "epoch": self._epoch,
            "position": self._position,
            "pass": self._pass,
            "state": self._dataset.state_dict(),
        }
        buffer = io.BytesIO()
        try:
            torch.save(place, buffer)
            torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)
        except Exception:
            return None
        return buffer.getvalue()

    def go_to(self, place: Mapping[str, object]) -> None:
        """Begin at a `place` of an earlier run; takes effect when the first sample is read."""
        self._place = place

    def _sample(self, chunk: Chunk, index: int) -> object:
        if index in self._kept:
            # a step that ran out of memory is repeated, but a stream cannot go back
            return self._kept[index]
        if chunk.weightless and self._last is not None:
            return self._last
        if chunk.epoch != self._epoch or index < self._position:
            self._open(chunk.epoch, index)
        while self._position <= index:
            if self.should_stop is not None and self.should_stop():
                raise StoppedError
            self._last = self._next()
        self._kept[index] = self._last
        return self._last

    def _open(self, epoch: int, index: int) -> None:
        place, self._place = self._place, None
        self._epoch = self._pass = epoch
        self._position = 0
        if place is not None and place["epoch"] == epoch and cast(int, place["position"]) <= index:
            self._position, self._pass = cast(int, place["position"]), cast(int, place["pass"])
            cast(KeepsPlace, self._dataset).load_state_dict(cast("Mapping[str, object]", place["state"]))
        self._begin_pass()
        if self._position:
            # it may end immediately here without being empty
            self._pass_began = -1

    def _begin_pass(self) -> None:
        set_epoch = getattr(self._dataset, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(self._pass)
        self._pass_began = self._position
        draws.seed(_ALL, sample_seed(self._seed + 2, self._epoch, self._pass))
        self._samples = iter(cast("Iterable[object]", self._dataset))

    def _next(self) -> object:
        while True:
            draws.seed(_ALL, sample_seed(self._seed, self._epoch, self._position))
            try:
                found = next(cast("Iterator[object]", self._samples))
            except StopIteration:
                self._end_pass()
                continue
            except Exception as problem:
                if self.keeps_place and is_out_of_memory(problem):
                    raise GpudocError(
                        f"out of memory in the data set's own iterator, after {self._position} samples; it keeps "
                        "its own place, so it cannot deliver the same sample again",
                        hint="run the same command again with a smaller batch or more memory: it continues from the "
                        "last checkpoint",
                        exit_code=ExitCode.BAD_ANSWER,
                    ) from problem
                # an iterator that raised has ended: the next one starts over and skips what was read
                self._epoch = -1
                raise
            self._position += 1
            return found

    def _end_pass(self) -> None:
        if self._length != ENDLESS:
            raise GpudocError(
                f"the data set ended after {self._position} samples, but its __len__ says {self._length}",
                hint="make both agree, or leave out __len__ and set --steps N",
                exit_code=ExitCode.BAD_ANSWER,
            )
        if self._position == self._pass_began:
            raise GpudocError(
                f"the data set gave no sample in pass {self._pass}",
                hint="does its __iter__ return the same, exhausted iterator again?",
                exit_code=ExitCode.BAD_ANSWER,
            )
        self._pass += 1
        self._begin_pass()


def length_of(workload: Workload) -> int:
    """Samples in an epoch; ENDLESS for a stream without a length."""
    return workload.num_samples if isinstance(workload.dataset, Sized) or not workload.is_stream else ENDLESS


def most_workers(workload: Workload) -> int | None:
    """The most loader workers that the training set can use; None: any number.

    Two workers would each read the whole stream; even one reads ahead of the position that a checkpoint must save.
    """
    if not workload.is_stream:
        return None
    return 0 if keeps_place(workload.dataset) else 1


def reader_of(workload: Workload, seed: int) -> Reads:
    """The training set, read by chunk."""
    if workload.is_stream:
        return StreamReader(workload.dataset, workload.collate, seed, length_of(workload))
    return Reader(workload.dataset, workload.collate, seed)


def eval_reader_of(workload: Workload, seed: int) -> Reads | None:
    """The eval set, read by chunk, None if there is none; GpudocError for a stream without a length."""
    dataset = workload.eval_dataset
    if dataset is None:
        return None
    if not is_stream(dataset):
        return Reader(dataset, workload.collate, seed)
    if not isinstance(dataset, Sized):
        raise GpudocError(
            "data.eval: an iterable data set without a length", hint="define __len__, because evaluation must end"
        )
    return StreamReader(dataset, workload.collate, seed, len(dataset))


def first_batch(workload: Workload, seed: int) -> Batch:
    """A batch of only the first sample; resets a stream that keeps its place."""
    dataset = workload.dataset
    place = dataset.state_dict() if workload.is_stream and isinstance(dataset, KeepsPlace) else None
    batch = reader_of(workload, seed)[Chunk(0, 0, 0, (0,), True)]
    if place is not None:
        cast(KeepsPlace, dataset).load_state_dict(place)
    return batch
