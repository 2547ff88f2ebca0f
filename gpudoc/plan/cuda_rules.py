"""Memory that CUDA kernels take inside one operation, by rule.

The rules follow from PyTorch's sources, and were compared block by block with the allocations of its CUDA build (2.9.1)
on an imitated card (campaigns/plan_standin.py). cuDNN's convolution workspaces are left out, because they depend on
algorithm choices at run time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from gpudoc.plan.cuda_reduce import buffer_bytes, semaphore_bytes
from gpudoc.plan.scratch import NOTHING, Extra, Rules, Scratch, computed, pulse
from gpudoc.plan.tape import Formula

# workspaces that a thread keeps from its first product on; the second comes with the first product that adds a bias
CUBLAS, CUBLAS_LT = "cuBLAS", "cuBLASLt"

# EmbeddingBackwardKernel.cuh: few indices are added one by one; otherwise ten rows make one partial sum
_FEW_INDICES, _ROWS_PER_SUM = 3072, 10
# padding of the fused attention's kernels
_FLASH_ROWS, _FLASH_WIDTH = 128, 32
_EFFICIENT_TILE, _EFFICIENT_HEADER = 64, 16
# two counters of the random state, kept for the backward pass
_RANDOM_STATE = (16, 8)
_HALVES = (torch.bfloat16, torch.float16)


def reduction(args: Sequence[Any], out: object) -> Extra:
    """A sum over some dimensions: partial results of thread blocks, and their counters."""
    value = args[0]
    if not isinstance(out, torch.Tensor) or not value.is_contiguous() or value.numel() == 0 or out.numel() == 0:
        return NOTHING
    # whether the last dimension is among the summed ones
    chosen = args[1] if len(args) > 1 and args[1] else range(value.dim())
    along_rows = int(value.dim() - 1 in [dim % value.dim() for dim in chosen])
    dims = (out.numel(), value.numel() // out.numel(), value.element_size(), along_rows)
    return computed(Formula(buffer_bytes, dims), Formula(semaphore_bytes, dims))


def embedding_backward(args: Sequence[Any], _: object) -> Extra:
    """Gradient of an embedding: equal rows are found by sorting the indices, and added in pieces."""
    dims = (args[1].numel(), int(args[2]), args[0].shape[-1], args[1].element_size())
    # sorted indices, their origins and the starts of equal ones; the number of pieces of each, and their starts
    blocks = (*[_index_bytes] * 3, *[_segment_bytes] * 2, _piece_bytes, _partial_sum_bytes)
    return computed(*(Formula(of, dims) for of in blocks))


def _index_bytes(count: int, _: int, __: int, item: int) -> int:
    return 0 if count <= _FEW_INDICES else count * item


def _segment_bytes(count: int, rows: int, _: int, item: int) -> int:
    return 0 if count <= _FEW_INDICES else min(count, rows) * item


def _piece_bytes(count: int, rows: int, _: int, item: int) -> int:
    return 0 if count <= _FEW_INDICES else (count // _ROWS_PER_SUM + min(count, rows)) * item


def _partial_sum_bytes(count: int, rows: int, width: int, _: int) -> int:
    return 0 if count <= _FEW_INDICES else (count // _ROWS_PER_SUM + min(count, rows)) * _up(width, 32) * 4


def attention(args: Sequence[Any], _: object) -> Extra:
    """Flash attention, the kernel for 16 bits, keeps the state of its random numbers, with or without dropout."""
    return Extra(beside={1: _RANDOM_STATE}) if args[0].dtype in _HALVES else NOTHING


def attention_backward(args: Sequence[Any], _: object) -> Extra:
    """The backward pass sums in float32: flash attention in 16 bits, the memory-efficient kernel otherwise."""
    query = args[1]
    batch, heads, rows, width = query.shape
    if query.dtype in _HALVES:
        padded = _up(rows, _FLASH_ROWS)
        row_sums = Scratch(4 * batch * heads * padded)
        return Extra((row_sums, Scratch(4 * batch * padded * heads * _up(width, _FLASH_WIDTH))))
    tiles = -(-rows // _EFFICIENT_TILE) * -(-width // _EFFICIENT_TILE)
    queries = batch * heads * tiles * (_EFFICIENT_HEADER + 4 * _EFFICIENT_TILE**2)
    row_sums = Scratch(4 * batch * heads * rows)
    # the product of gradient and result (with row sums in two layouts) is freed before the tiles are allocated
    return Extra((Scratch(max(queries, 4 * math.prod(query.shape))), row_sums, row_sums))


def reduced_loss(args: Sequence[Any], out: object) -> Extra:
    """A loss reduced to one number is first computed for every element (aten/src/ATen/native/Loss.cpp)."""
    value = args[0]
    if not isinstance(out, torch.Tensor) or out.dim() or value.numel() <= 1:
        return NOTHING
    return pulse(value.numel() * value.element_size())


def rnn_layer(args: Sequence[Any], _: object) -> Extra:
    """cuDNN keeps, per step and unit, four gates, the cell and its tanh for the backward pass."""
    steps, batch, _ = args[0].shape
    return pulse(0, {3: 6 * steps * batch * int(args[10]) * args[0].element_size()} if args[15] else {})


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


CUDA_RULES = Rules(
    {
        "sum": reduction,
        "embedding_dense_backward": embedding_backward,
        "_scaled_dot_product_flash_attention_for_cpu": attention,
        "_scaled_dot_product_flash_attention_for_cpu_backward": attention_backward,
        "mkldnn_rnn_layer": rnn_layer,
        **dict.fromkeys(("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"), reduced_loss),
    },
    products={
        "mm": (CUBLAS,),
        "bmm": (CUBLAS,),
        "baddbmm": (CUBLAS,),
        "addmm": (CUBLAS, CUBLAS_LT),
    },
)
