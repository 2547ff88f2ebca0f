"""Host memory for copies of state before writing; on CUDA pinned and kept, so that steps continue meanwhile."""

from __future__ import annotations

import torch

from gpudoc.train.limits import default_limit_bytes


class Copying:
    """Copies from the device in progress: the writer waits for them, and so does the next update."""

    def __init__(self, device: torch.device, done: torch.cuda.Event, sources: list[torch.Tensor]) -> None:
        self._device = device
        self._done = done
        # keeps the sources: freed memory could be reused and overwritten before it is copied
        self._sources = sources

    def wait(self) -> None:
        """Return when everything has arrived on the host."""
        self._done.synchronize()
        self._sources = []

    def hold_update(self) -> None:
        """Make the device's later work begin after the copies; the host does not wait."""
        torch.cuda.current_stream(self._device).wait_event(self._done)


class Staging:
    """Copies tensors to the host. On CUDA the copies run in a separate stream during the next forward and backward,
    into pinned memory that is kept for the next checkpoint; elsewhere they are made at once and freed after writing.

    Tensors that do not fit into half of the free memory are copied into ordinary memory, and the host waits for that.
    With `in_place` host tensors are not copied at all: nothing may change them until they are written.
    """

    def __init__(self, device: torch.device, local_world: int = 1) -> None:
        self._device = device
        self._on_device = device.type == "cuda"
        self._local_world = local_world
        self.in_place = False
        self._stream: torch.cuda.Stream | None = None
        self._kept: dict[str, torch.Tensor] = {}
        self._most_bytes: int | None = None
        # the memory kept for the next checkpoint, in the sizes of torch's allocator of pinned memory
        self.pinned_bytes = 0
        self._sources: list[torch.Tensor] = []

    def take(self, name: str, tensor: torch.Tensor, *, moves: bool = False, contiguous: bool = False) -> torch.Tensor:
        """A copy of `tensor` on the host, complete after waiting for `finish`; `name` finds the memory of last time.

        `moves`: a forward pass changes it (running statistics), so it is copied before any later work.
        """
        detached = tensor.detach()
        kept = self._memory_for(name, detached, contiguous) if detached.is_cuda and self._on_device else None
        if kept is None:
            copied = detached.to("cpu", copy=not self.in_place)
            return copied.contiguous() if contiguous else copied
        current = torch.cuda.current_stream(self._device)
        if not self._sources:
            self._side().wait_stream(current)
        with torch.cuda.stream(current if moves else self._side()):
            kept.copy_(detached, non_blocking=True)
        self._sources.append(detached)
        return kept

    def finish(self) -> Copying | None:
        """The copies begun since the last call; None if all of them are already complete."""
        if not self._sources:
            return None
        side = self._side()
        side.wait_stream(torch.cuda.current_stream(self._device))
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record(side)
        sources, self._sources = self._sources, []
        return Copying(self._device, done, sources)

    def _side(self) -> torch.cuda.Stream:
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        return self._stream

    def _memory_for(self, name: str, tensor: torch.Tensor, contiguous: bool) -> torch.Tensor | None:
        """Pinned memory of the tensor's shape, reused from last time if it fits; None if there is no memory for it."""
        if tensor.layout is not torch.strided:
            return None
        kept = self._kept.get(name)
        if kept is not None and kept.shape == tensor.shape and kept.dtype == tensor.dtype:
            return kept
        if self._most_bytes is None:
            self._most_bytes = (default_limit_bytes() or 0) // self._local_world
        # torch's allocator rounds up to a power of two
        needed = 1 << max(0, tensor.nbytes - 1).bit_length()
        if self.pinned_bytes + needed > self._most_bytes:
            return None
        form = torch.contiguous_format if contiguous else torch.preserve_format
        try:
            kept = torch.empty_like(tensor, device="cpu", memory_format=form, pin_memory=True)
        except RuntimeError:
            # the system allows less than its free memory: a locked-memory limit, a small container
            self._most_bytes = 0
            return None
        self.pinned_bytes += needed
        self._kept[name] = kept
        return kept
