"""A batch and its samples: how many, how many bytes, what they hold, and which of a data set are the largest."""

from __future__ import annotations

import ctypes
import hashlib
import math
import sys
import time
from typing import Any, Iterator

# as many as the tuner of own configurations looks at
SCAN_SECONDS = 2.0
MAX_SCANNED = 20_000
_MAX_DEPTH = 6


def tensors(value: Any, depth: int = 0) -> Iterator[Any]:
    """Every tensor in a batch: in lists, tuples, dicts, and in what an object that is a batch holds."""
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        yield value
    elif depth >= _MAX_DEPTH or isinstance(value, (str, bytes, int, float)):
        return
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item, depth + 1)
    elif hasattr(value, "items"):
        for _, item in value.items():
            yield from tensors(item, depth + 1)
    elif depth <= 1 and hasattr(value, "__dict__"):
        # not deeper: an object may hold the whole data set, or itself
        for item in list(vars(value).values()):
            yield from tensors(item, depth + 1)


def count(batch: Any, asked: int | None) -> int | None:
    """Samples in a batch: the first dimension of its first tensor, at most `asked`; None when it holds no tensor."""
    first = batch[0] if type(batch) in (list, tuple) and batch else batch
    if type(first) is not sys.modules["torch"].Tensor or not first.ndim:
        # walking through all kinds takes several times as long, and most batches begin with a tensor
        first = next((tensor for tensor in tensors(batch) if tensor.dim()), None)
        if first is None:
            return asked
    found = int(first.shape[0])
    return found if asked is None or found <= asked else asked


def num_bytes(batch: Any) -> int:
    """Bytes of all tensors of a batch."""
    return sum(int(tensor.numel() * tensor.element_size()) for tensor in tensors(batch))


def digest(batch: Any, single: bool = False) -> str:
    """What a batch holds in 16 characters: equal for equal values in equal places, of doubles in single precision."""
    known = hashlib.blake2b(digest_size=8)
    for tensor in tensors(batch):
        held = tensor.detach().cpu().contiguous()
        held = held.float() if single and "float64" in str(held.dtype) else held
        known.update((f"{held.dtype}{tuple(held.shape)}").encode())
        known.update(ctypes.string_at(held.data_ptr(), held.numel() * held.element_size()))
    return known.hexdigest()


def size(sample: Any, depth: int = 0) -> int:
    """How large a sample is, to be compared with others of its data set."""
    total = getattr(sample, "nbytes", None)
    if isinstance(total, int):
        return total
    if isinstance(sample, (str, bytes)):
        return len(sample)
    if depth < _MAX_DEPTH and isinstance(sample, (list, tuple)):
        return sum(size(item, depth + 1) for item in sample)
    if depth < _MAX_DEPTH and hasattr(sample, "items"):
        return sum(size(item, depth + 1) for _, item in sample.items())
    shape = getattr(sample, "size", None)
    if isinstance(shape, tuple) and len(shape) == 2:
        # an image that is not decoded to numbers yet
        return int(shape[0]) * int(shape[1])
    return 1


def largest(dataset: Any, most: int) -> list[int]:
    """The indices of the `most` largest samples, the largest first, of those that two seconds allow to look at.

    Where there are more than can be looked at, they are taken from all over the data set.
    """
    number = len(dataset)
    # the golden ratio: wherever one stops, no part of the data set was left out
    step = round(0.618034 * number)
    while math.gcd(step, number) > 1:
        step += 1
    until = time.perf_counter() + SCAN_SECONDS
    found = []
    for index in (count * step % number for count in range(min(number, MAX_SCANNED))):
        found.append((-size(dataset[index]), index))
        if time.perf_counter() > until:
            break
    return [index for _, index in sorted(found)[:most]]


def largest_first(loader: Any, batches: int) -> int:
    """Let the first `batches` batches of a loader hold its largest samples; the size of the largest one.

    Its batch sampler must be torch's own. What follows them are the batches that it had anyway.
    """
    torch_batches: Any = sys.modules["torch.utils.data.sampler"]
    plain = loader.batch_sampler
    chosen = largest(loader.dataset, plain.batch_size)
    if not chosen:
        return 0

    class LargestFirst(torch_batches.BatchSampler):  # type: ignore[misc]
        """The batch sampler of the script behind some batches of the largest samples."""

        def __init__(self) -> None:
            super().__init__(plain.sampler, plain.batch_size, plain.drop_last)

        def __iter__(self) -> Iterator[list[int]]:
            repeated = [chosen[index % len(chosen)] for index in range(plain.batch_size)]
            for _ in range(batches):
                yield list(repeated)
            yield from plain

    # the attribute may not be set once a loader is built
    loader.__dict__["batch_sampler"] = LargestFirst()
    return size(loader.dataset[chosen[0]])
