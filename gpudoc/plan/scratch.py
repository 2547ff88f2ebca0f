"""Rules for memory that kernels take inside one operation and that no tensor in Python shows.

The CPU rules describe oneDNN 3.x: they were derived from the profiler's memory events of torch 2.13 on an AVX-512 CPU
(2026-11-20). The CUDA rules are in cuda_rules.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from gpudoc.plan.tape import Formula

if TYPE_CHECKING:
    from torch._ops import OpOverload

# oneDNN lays channels out in blocks of one AVX-512 register, and RNN workspaces in pages
_CHANNEL_BLOCK = 16
_PAGE = 4096
_SUMS = 80_000


@dataclass(frozen=True, slots=True)
class Scratch:
    """One block of scratch; `formula` gives its size at other batches if it is not linear."""

    size_bytes: int
    formula: Formula | None = None


@dataclass(frozen=True, slots=True)
class Extra:
    """Memory that one call takes in addition to its visible results.

    `scratch` comes on top of the results, block by block, and is freed before the call returns; `held` maps the
    position of a result to its real bytes if its fake tensor has none; `beside` maps it to further blocks that live as
    long as the result.
    """

    scratch: tuple[Scratch, ...] = ()
    held: Mapping[int, int] = field(default_factory=dict)
    beside: Mapping[int, Sequence[int]] = field(default_factory=dict)


def pulse(size_bytes: int, held: Mapping[int, int] | None = None) -> Extra:
    """One block of scratch, whose size is a line in the batch."""
    return Extra((Scratch(size_bytes),) if size_bytes > 0 else (), held or {})


def computed(*formulas: Formula) -> Extra:
    """Blocks of scratch whose sizes are not linear in the batch."""
    return Extra(tuple(Scratch(formula.of(*formula.dims), formula) for formula in formulas))


NOTHING = Extra()
Rule = Callable[[Sequence[Any], Any], Extra]


class Rules:
    """The rules of one kind of kernels, by operation; the first of the `products` takes a workspace before it runs."""

    def __init__(self, by_op: Mapping[str, Rule], products: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self._by_op = by_op
        self.products = products or {}

    def find(self, func: OpOverload, args: Sequence[Any], out: object) -> Extra:
        """The memory that `func` takes in addition to `out`; NOTHING without a rule."""
        rule = self._by_op.get(func._overloadpacket.__name__)
        return NOTHING if rule is None else rule(args, out)


def cpu_convolution(args: Sequence[Any], out: torch.Tensor) -> Extra:
    """Forward: input, weight and result are reordered into blocks, and the result back; not for channels-last."""
    image, weight, transposed = args[0], args[1], bool(args[6])
    if not _is_onednn(image) or _is_channels_last(image):
        return NOTHING
    # an input with fewer channels than a block is read in place
    blocked_input = _blocked(image) if image.shape[1] >= _CHANNEL_BLOCK else 0
    blocked_weight = _blocked_weight(weight, transposed)
    blocked_out = _blocked(out)
    return pulse(max(blocked_input + blocked_weight + blocked_out - _bytes(out), blocked_out))


def cpu_convolution_backward(args: Sequence[Any], out: Sequence[torch.Tensor | None]) -> Extra:
    """Backward: everything is reordered for the input's gradient and again for the weight's."""
    gradient, image, weight, transposed = args[0], args[1], args[2], bool(args[7])
    if not _is_onednn(image) or _is_channels_last(image):
        return NOTHING
    blocked_gradient = _blocked(gradient)
    blocked_weight = _blocked_weight(weight, transposed)
    results = sum(_bytes(tensor) for tensor in out if tensor is not None)
    for_input = 0
    own = _bytes(out[0]) if out[0] is not None else 0
    if out[0] is not None:
        for_input = max(blocked_gradient + blocked_weight + _blocked(out[0]), 3 * own)
    # in 16 bits the weight's gradient is summed in float32
    sums = 4 * weight.numel() if weight.element_size() < 4 else 0
    for_weight = own + blocked_gradient + _blocked(image) + blocked_weight + sums
    return pulse(max(0, max(for_input, for_weight) - results))


def cpu_rnn_layer(args: Sequence[Any], _: Sequence[torch.Tensor]) -> Extra:
    """Forward of one LSTM layer: weights reordered, gates as scratch, and a workspace kept for the backward pass."""
    steps, batch, inputs = args[0].shape
    hidden, width = int(args[10]), args[0].element_size()
    scratch = _rnn_weights(inputs, hidden, width) + _rnn_scratch(steps, batch, hidden, width)
    return pulse(scratch, {3: _rnn_workspace(steps, batch, inputs, hidden, width)} if args[15] else {})


def cpu_rnn_layer_backward(args: Sequence[Any], _: object) -> Extra:
    """Backward of one LSTM layer: weights reordered, scratch, and in 16 bits float32 sums of every gradient."""
    steps, batch, inputs = args[0].shape
    hidden, width = int(args[15]), args[0].element_size()
    sums = _rnn_weights(inputs, hidden, 4) + 4 * args[0].numel() if width < 4 else 0
    return pulse(_rnn_weights(inputs, hidden, width) + _rnn_scratch(steps, batch, hidden, width) + sums)


def cpu_matmul(args: Sequence[Any], _: object) -> Extra:
    """A product in 16 bits: each thread packs blocks of at most 256 rows by 512, and more if a factor is transposed."""
    left, right = [item for item in args if isinstance(item, torch.Tensor)][-2:]
    if left.dtype not in (torch.bfloat16, torch.float16) or not _has_onednn():
        return NOTHING
    is_transposed = left.stride(-1) != 1 and left.shape[-1] > 1
    dims = (left.shape[-2], left.shape[-1], right.shape[-1], int(is_transposed), torch.get_num_threads())
    return computed(Formula(packed_bytes, dims))


def packed_bytes(rows: int, inner: int, columns: int, is_transposed: int, threads: int) -> int:
    """Bytes that the threads pack for one 16-bit product; grows with each dimension up to a block's size."""
    block = min(rows, 256)
    plain = 256 * block + 128 * (min(inner, 512) if inner < 2048 else 1024)
    if not is_transposed:
        return threads * plain
    packed = plain + 2 * block * inner if inner <= 512 else 1024 * (block + min(columns, 1024)) + _SUMS
    # threads share one block of rows, but each has its own sums
    return packed * min(threads, rows // 256) if rows > 256 else packed + _SUMS * (threads - 1)


CPU_RULES = Rules(
    {
        "mm": cpu_matmul,
        "addmm": cpu_matmul,
        "convolution": cpu_convolution,
        "convolution_backward": cpu_convolution_backward,
        "mkldnn_rnn_layer": cpu_rnn_layer,
        "mkldnn_rnn_layer_backward": cpu_rnn_layer_backward,
    }
)


def _has_onednn() -> bool:
    return bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def _is_onednn(tensor: torch.Tensor) -> bool:
    # float64 convolutions take torch's own path
    return _has_onednn() and tensor.dtype in (torch.float32, torch.bfloat16, torch.float16)


def _is_channels_last(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _blocked(tensor: torch.Tensor) -> int:
    rest = math.prod(tensor.shape) // max(1, tensor.shape[1])
    return rest * _up(tensor.shape[1], _CHANNEL_BLOCK) * tensor.element_size()


def _blocked_weight(weight: torch.Tensor, transposed: bool) -> int:
    outputs = weight.shape[1] if transposed else weight.shape[0]
    return _bytes(weight) // max(1, outputs) * _up(outputs, _CHANNEL_BLOCK)


def _leading(length: int, width: int) -> int:
    # oneDNN rounds rows to cache lines and avoids multiples of 256 elements, which would share cache sets
    rounded = _up(length, 64 // width)
    return rounded + 64 // width if rounded % 256 == 0 else rounded


def _rnn_weights(inputs: int, hidden: int, width: int) -> int:
    row = _leading(4 * hidden, width) if width == 4 else 4 * hidden
    return (inputs + hidden) * row * width


def _rnn_scratch(steps: int, batch: int, hidden: int, width: int) -> int:
    # 16-bit kernels keep the gates of one step, float32 kernels those of all steps
    rows = steps * batch if width == 4 else batch
    return rows * _leading(4 * hidden, 4) * 4 + 8 * batch * hidden


def _rnn_workspace(steps: int, batch: int, inputs: int, hidden: int, width: int) -> int:
    wide, both = max(inputs, hidden), 2 * (steps + 1) * batch
    areas = (
        steps * batch * _leading(4 * hidden, width) * width,
        steps * batch * _leading(hidden, width) * width,
        both * _leading(wide, width) * width,
        2 * [both * _leading(wide, 4) * 4],
        both * hidden * width,
        both * hidden * 4,
    )
    flat = [size for area in areas for size in (area if isinstance(area, list) else [area])]
    return sum(_up(size, _PAGE) for size in flat)
