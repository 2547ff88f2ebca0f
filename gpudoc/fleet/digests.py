"""Silent corruption: products of which every bit must be the same on GPUs of one kind with one library."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_SEED = 20
# the most different digests to report of a GPU that gives another result each time
_MOST_DIFFERENT = 8
_FEWEST = 3


def digest_products(device: torch.device, size: int, seconds: float) -> Iterator[tuple[str, dict[str, int]]]:
    """('mm bf16 4096', {digest: how often}) for each type, each for its share of `seconds`.

    The inputs are drawn on the host, whose generator gives the same numbers everywhere. Each repeat is compared with
    the first on the device, bit by bit; only a different one is copied to the host.
    """
    types = _types(device)
    for name in types:
        left, right = _inputs(name, size, device)
        yield f"mm {name} {size}", _repeat(left, right, seconds / len(types))


def cublas_version() -> str:
    """The version of the cuBLAS that this process uses; '' if it cannot be read."""
    import ctypes

    import torch

    try:
        # the library that torch has loaded: this name cannot open another one
        library = ctypes.CDLL(f"libcublas.so.{str(torch.version.cuda).partition('.')[0]}")
        parts = [ctypes.c_int(-1) for _ in range(3)]
        failed = [library.cublasGetProperty(which, ctypes.byref(part)) for which, part in enumerate(parts)]
    except (OSError, AttributeError):
        return ""
    return "" if any(failed) else ".".join(str(part.value) for part in parts)


def _types(device: torch.device) -> tuple[str, ...]:
    if device.type == "cpu":
        return ("fp32", "bf16")
    import torch

    # tensor cores and ordinary cores are different parts of the chip
    return ("fp32", "fp16", "bf16") if torch.cuda.get_device_capability(device) >= (8, 0) else ("fp32", "fp16")


def _inputs(name: str, size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[name]
    draw = torch.Generator().manual_seed(_SEED)
    torch.set_float32_matmul_precision("highest")
    pair = [torch.randn(size, size, generator=draw).to(dtype).to(device) for _ in range(2)]
    return pair[0], pair[1]


def _repeat(left: torch.Tensor, right: torch.Tensor, seconds: float) -> dict[str, int]:
    import torch

    end = time.monotonic() + seconds
    first = torch.mm(left, right)
    bits = torch.int16 if first.element_size() == 2 else torch.int32
    seen = {_digest(first): 1}
    out, count = torch.empty_like(first), 1
    while count < _FEWEST or time.monotonic() < end:
        torch.mm(left, right, out=out)
        count += 1
        if torch.equal(first.view(bits), out.view(bits)):
            seen[next(iter(seen))] += 1
        elif len(seen) < _MOST_DIFFERENT:
            digest = _digest(out)
            seen[digest] = seen.get(digest, 0) + 1
    return seen


def _digest(product: torch.Tensor) -> str:
    import torch

    raw = product.contiguous().cpu().view(torch.uint8).numpy()
    return hashlib.sha256(raw.tobytes()).hexdigest()[:16]
