"""At most 64 real samples, the longest among them, repeated to any batch: a slow data set is read only once."""

from __future__ import annotations

import copy
import math
import mmap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.utils.data import DataLoader, Sampler, default_collate

from gpudoc.errors import GpudocError
from gpudoc.process.loader_workers import shorten_socket_paths, start_worker, start_workers
from gpudoc.profile.model import Loader
from gpudoc.train.data.order import Order
from gpudoc.tune.trial.sweep import note_process
from gpudoc.workload.batch import Batch, num_bytes
from gpudoc.workload.build import Collate, Dataset, Workload

MAX_KEPT = 64
SCAN_SECONDS = 2.0
MAX_SCANNED = 20_000
# the search for longer samples ends after this many of one size: it would have met one (95 %) if 1 in 700 was longer
ENOUGH_ALIKE = 2_000
# blocks of this size return to the system when they are freed (MALLOC_MMAP_THRESHOLD_ of the exact allocator)
_RETURNED_BYTES = 1 << 20
# 64 samples below this take 1 MiB, which is less than a peak varies from process to process
_LIGHT_BYTES = 1 << 14
# the heap memory of a tensor object in addition to its data
_OBJECT_BYTES = 480
_INDICES_AT_ONCE = 1024


class Shuffled(Sampler[int]):
    """One rank's indices, each epoch in a different order of train's, at 4 bytes a sample.

    PyTorch's own shuffling holds a list of numbers, at 40 bytes a sample: more than training has near a memory limit.
    """

    def __init__(self, order: Order, rank: int, world: int) -> None:
        self._order = order
        self.rank = rank
        self._epoch, self._world = rank, world

    def __len__(self) -> int:
        return self._order.num_samples

    def __iter__(self) -> Iterator[int]:
        epoch, count = self._epoch, len(self)
        self._epoch += self._world
        for start in range(0, count, _INDICES_AT_ONCE):
            yield from self._order.indices(epoch, start, min(start + _INDICES_AT_ONCE, count))


def make_loader(workload: Workload, order: Shuffled, batch: int, feed: Loader) -> DataLoader[object]:
    """A real loader of the training set, as training would make it."""
    shorten_socket_paths()
    return DataLoader(
        workload.dataset,
        batch_size=batch,
        sampler=order,
        # each iterator draws a seed, which must not come from the generator that the model draws from
        generator=torch.Generator().manual_seed(order.rank),
        collate_fn=workload.collate,
        drop_last=True,
        num_workers=feed.num_workers,
        prefetch_factor=feed.prefetch_factor if feed.num_workers else None,
        pin_memory=feed.pin_memory,
        persistent_workers=feed.persistent_workers and feed.num_workers > 0,
        worker_init_fn=_start_worker if feed.num_workers else None,
    )


def _start_worker(number: int) -> None:
    start_worker(number)
    note_process()


def endless(loader: DataLoader[object]) -> Iterator[object]:
    """The loader's batches, epoch after epoch."""
    while True:
        yield from start_workers(loader, pins=loader.pin_memory)


class Samples:
    """Real samples of one data set: the longest seen, and typical ones, ready to be collated to any batch size."""

    def __init__(self, dataset: Dataset, collate: Collate | None, count: int) -> None:
        self._collate: Collate = collate or default_collate
        self.count = count
        self._held: list[object] = []
        self._held_of: Sequence[object] = ()
        typical, longest = _scan(dataset, count)
        back = {id(sample): taken_back(sample) for sample in (*typical, *longest)}
        self._typical = [back[id(sample)] for sample in typical]
        self._longest = [back[id(sample)] for sample in longest]
        # samples outside do not stand in for any part of a batch: a trial then copies every sample of the batch
        self._are_outside = is_outside(self._longest[0])
        self.sizes_differ = len({sample_bytes(sample) for sample in back.values()}) > 1

    def worst(self, batch: int) -> Batch:
        """A batch of the longest samples, repeated."""
        return self._make(self._longest, batch)

    def typical(self, batch: int) -> Batch:
        """A batch of samples from all over the data set, repeated."""
        return self._make(self._typical, batch)

    @property
    def held_bytes_per_sample(self) -> int:
        """Heap memory that a sample takes in training, in addition to the batch that it is collated into."""
        return copy_bytes(self._longest[0])

    def let_go(self) -> None:
        """Free the copies made for the last batch, as training does when it turns to another data set."""
        self._held, self._held_of = [], ()

    @property
    def kept_bytes(self) -> int:
        """Memory of the kept samples, which training does not have; 0 if no limit counts it."""
        if self._are_outside:
            return 0
        kept = {id(sample): sample for sample in (*self._typical, *self._longest)}
        return sum(map(sample_bytes, kept.values()))

    def _make(self, samples: Sequence[object], batch: int) -> Batch:
        chosen = [samples[index % len(samples)] for index in range(batch)]
        stand_in = 0 if self._are_outside else len(samples)
        # training reads new samples for every batch. The heap keeps the space of small ones after they are freed, and
        # no large tensor of the step fits into it: so copies are held here until the next batch
        if samples is not self._held_of:
            self.let_go()
        self._held_of = samples
        del self._held[max(0, batch - stand_in) :]
        self._held += [copy_of(sample) for sample in chosen[stand_in + len(self._held) :]]
        try:
            return self._collate([*chosen[:stand_in], *self._held])
        except (RuntimeError, TypeError) as problem:
            if batch > 1 and self.sizes_differ and self._collate is default_collate:
                raise GpudocError(
                    f"the samples differ in size and cannot be stacked: {str(problem).splitlines()[0]}",
                    hint="set a collate function that pads them: data: {collate: 'mydata:pad'}",
                ) from problem
            raise
        finally:
            if max(map(sample_bytes, samples)) >= _RETURNED_BYTES:
                self.let_go()


def collect_samples(workload: Workload) -> Samples:
    """The samples of a workload's training set; errors in the user's data set pass through unchanged.

    Raises GpudocError for a data set that can only be iterated: its longest sample cannot be found or read twice.
    """
    if workload.is_stream:
        raise GpudocError(
            "tune needs a data set with __len__ and __getitem__, but this one is iterable only",
            hint=(
                "tune on a list of a few hundred of its samples; gpudoc train accepts it unchanged, with --batch-size N"
            ),
        )
    return Samples(workload.dataset, workload.collate, workload.num_samples)


@dataclass(frozen=True, slots=True)
class Outside:
    """A tensor in memory that forked trials share, which RLIMIT_DATA does not count.

    The tensor object is made last: otherwise it would lie in the heap between two large samples.
    """

    memory: mmap.mmap
    dtype: torch.dtype
    shape: torch.Size

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return len(self.memory)

    def tensor(self) -> torch.Tensor:
        """The tensor itself."""
        return torch.frombuffer(self.memory, dtype=torch.uint8).view(self.dtype).view(self.shape)


def put_outside(sample: object) -> object:
    """The sample with an `Outside` in place of each large tensor that it owns."""
    return _mapped(sample, _moved)


def taken_back(sample: object) -> object:
    """The sample with a tensor for each `Outside`."""
    return _mapped(sample, lambda part: part.tensor() if isinstance(part, Outside) else part)


def _mapped(sample: object, change: Callable[[object], object]) -> object:
    if type(sample) is dict:
        return {key: _mapped(value, change) for key, value in sample.items()}
    if type(sample) is list:
        return [_mapped(value, change) for value in sample]
    if type(sample) is tuple:
        return tuple(_mapped(value, change) for value in sample)
    return change(sample)


def _moved(part: object) -> object:
    if not isinstance(part, torch.Tensor) or not _is_movable(part):
        return part
    outside = Outside(mmap.mmap(-1, part.nbytes), part.dtype, part.shape)
    outside.tensor().copy_(part)
    return outside


def _is_movable(tensor: torch.Tensor) -> bool:
    """Whether this is a large plain tensor that owns its memory; one that the data set keeps costs training nothing."""
    plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
    if not plain or tensor.requires_grad or tensor.is_quantized or tensor.nbytes < _LIGHT_BYTES:
        return False
    return tensor.untyped_storage().nbytes() == tensor.nbytes


def is_outside(sample: object) -> bool:
    """Whether `put_outside` moves, or has moved, most of this sample."""
    return 2 * _bytes_outside(sample) > sample_bytes(sample)


def _bytes_outside(sample: object) -> int:
    if isinstance(sample, Mapping):
        return sum(map(_bytes_outside, sample.values()))
    if isinstance(sample, list | tuple):
        return sum(map(_bytes_outside, sample))
    return sample.nbytes if isinstance(sample, torch.Tensor) and _is_movable(sample) else 0


def copy_of(sample: object) -> object:
    """A copy of the sample that shares no memory with it, as if the data set had returned a new one."""
    match sample:
        case torch.Tensor():
            return sample.detach().clone()
        case str():
            # a slice of a longer text, since copy.deepcopy returns the same object
            return (sample + " ")[:-1]
        case bytes():
            return (sample + b" ")[:-1]
        case dict():
            return {key: copy_of(value) for key, value in sample.items()}
        case list():
            return [copy_of(value) for value in sample]
        case tuple() if type(sample) is tuple:
            return tuple(copy_of(value) for value in sample)
        case _:
            return copy.deepcopy(sample)


def copy_bytes(sample: object) -> int:
    """Heap bytes of a `copy_of` this sample: 0 for samples that leave the heap when they are freed.

    A copy of 4,096 bytes took 4,564, one of 2 x 1,024 bytes 3,009 (torch 2.13, glibc 2.36, 2026-11-21).
    """
    size = sample_bytes(sample)
    return 0 if size >= _RETURNED_BYTES else size + _OBJECT_BYTES * _num_objects(sample)


def _num_objects(sample: object) -> int:
    if isinstance(sample, Mapping):
        return sum(map(_num_objects, sample.values()))
    return sum(map(_num_objects, sample)) if isinstance(sample, list | tuple) else int(hasattr(sample, "nbytes"))


def sample_bytes(sample: object) -> int:
    """The size of one sample: bytes of its tensors and arrays, characters of its texts, items of its lists."""
    if isinstance(sample, Mapping):
        return sum(sample_bytes(value) for value in sample.values())
    if isinstance(sample, str | bytes):
        return len(sample)
    if isinstance(sample, list | tuple):
        return sum(sample_bytes(value) for value in sample)
    size = getattr(sample, "nbytes", None)
    return size if isinstance(size, int) else num_bytes(sample) or 8


def _scan(dataset: Dataset, count: int) -> tuple[list[object], list[object]]:
    """Typical samples, and the longest of the samples that the time allows to read, longest first."""
    kept = min(MAX_KEPT, count)
    typical_indexes = [index * count // kept for index in range(kept)]
    typical = [put_outside(dataset[index]) for index in typical_indexes]
    longest = sorted(typical, key=sample_bytes, reverse=True)
    if kept == count:
        return typical, longest
    sizes, least = set(map(sample_bytes, typical)), sample_bytes(longest[-1])
    deadline = time.monotonic() + SCAN_SECONDS
    for number, index in enumerate(_all_over(count)):
        if (number >= ENOUGH_ALIKE and len(sizes) == 1) or time.monotonic() > deadline:
            break
        sample = dataset[index]
        size = sample_bytes(sample)
        sizes.add(size)
        if size > least:
            longest = sorted([*longest, put_outside(sample)], key=sample_bytes, reverse=True)[:kept]
            least = sample_bytes(longest[-1])
    return typical, longest


def _all_over(count: int) -> Iterator[int]:
    """Indices without repetition that cover the whole data set evenly, wherever the caller stops.

    They step by the golden ratio: Steinhaus, the three-gap theorem.
    """
    step = round(count * (math.sqrt(5) - 1) / 2)
    while math.gcd(step, count) > 1:
        step += 1
    return (number * step % count for number in range(min(count, MAX_SCANNED)))
