"""Nested batches: moving them, counting and measuring them. A batch is a tensor, or dicts, tuples and lists of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

Batch = object


def map_tensors(batch: Batch, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
    """The same nesting with `change` applied to every tensor; other values stay as they are."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        mapped = {key: map_tensors(value, change) for key, value in batch.items()}
        if type(batch) is dict:
            return mapped
        try:
            return type(batch)(mapped)  # type: ignore[call-arg]
        except TypeError:
            return mapped
    if isinstance(batch, list | tuple):
        mapped_items = [map_tensors(value, change) for value in batch]
        is_named = isinstance(batch, tuple) and hasattr(batch, "_fields")
        kind: Callable[..., Batch] = type(batch)
        return kind(*mapped_items) if is_named else kind(mapped_items)
    return batch


def tensors_in(batch: Batch) -> Iterator[torch.Tensor]:
    """Every tensor of a batch, in a fixed order."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_in(value)
    elif isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        for value in batch:
            yield from tensors_in(value)


def to_device(batch: Batch, device: torch.device, *, channels_last: bool = False) -> Batch:
    """The batch on `device`, copied without waiting if the source is pinned."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        if channels_last and tensor.dim() == 4:
            return tensor.to(device, non_blocking=True, memory_format=torch.channels_last)
        return tensor.to(device, non_blocking=True)

    return map_tensors(batch, move)


def num_samples(batch: Batch) -> int:
    """The length of the first dimension of the first tensor that has one; 1 for a batch without such a tensor."""
    return next((tensor.shape[0] for tensor in tensors_in(batch) if tensor.dim() > 0), 1)


def num_bytes(batch: Batch) -> int:
    """Bytes of all tensors of a batch."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(batch))


def shapes(batch: Batch) -> str:
    """The shapes and types of a batch's tensors as one line for a message: 'int64[32, 128], float32[32]'."""
    return ", ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in tensors_in(batch))
