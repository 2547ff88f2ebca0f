"""Imitates a step on CUDA with fake CPU tensors: fused attention and dropout, CUDA's autocast rules, foreach.

The differences: CUDA's attention kernels do not keep a score matrix, with or without dropout; its dropout keeps one
byte per element; its autocast computes norms, softmax and losses in float32; its optimizers work on all parameters at
once unless switched off. Names and defaults as in torch 2.13 (aten/src/ATen/autocast_mode.h, torch/optim/optimizer.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from gpudoc.plan.emulate import Kernel, onednn_lstm, overriding

_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

# operations that run in float32 under CUDA's autocast but not under the CPU's
_IN_FLOAT32 = (
    *("layer_norm", "native_layer_norm", "group_norm", "rms_norm", "softplus", "cosine_similarity", "logsumexp"),
    *("exp", "expm1", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "pow.Tensor_Scalar", "pow.Tensor_Tensor"),
    *("pow.Scalar", "acos", "asin", "cosh", "erfinv", "sinh", "tan", "dist", "pdist", "renorm", "norm.Scalar"),
    *("norm.ScalarOpt_dim", "linalg_vector_norm", "cumsum", "cumprod", "sum", "sum.dim_IntList"),
)
_WIDEST_FUSED_HEAD = 256


@contextmanager
def like_cuda() -> Iterator[None]:
    """Make CPU tensors follow CUDA's code paths; devices named cuda become the CPU."""
    kernels: list[tuple[str, str, Kernel]] = [
        ("dropout", "AutogradCPU", _dropout),
        ("scaled_dot_product_attention", "AutogradCPU", _attention),
        ("lstm.input", "AutogradCPU", onednn_lstm),
        *([("rms_norm", "AutogradCPU", _rms_norm)] if _exists("_fused_rms_norm_backward") else []),
        ("softmax.int", "AutocastCPU", _widening("softmax")),
        ("log_softmax.int", "AutocastCPU", _widening("log_softmax")),
        # on CUDA the loss itself is not cast: its log-softmax stays narrow, later operations are wide
        ("cross_entropy_loss", "AutocastCPU", torch.library.fallthrough_kernel),
        *((name, "AutocastCPU", _in_float32(name)) for name in _IN_FLOAT32 if _exists(name) and _is_widened(name)),
    ]
    with overriding(kernels), _NoCuda(), _autocast_on_cpu():
        yield


def prefer_foreach(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Set CUDA's default for optimizers: all parameters in one call, unless the user chose otherwise."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if group.get("foreach", False) is None and not group.get("fused"):
                group["foreach"] = True


def _exists(name: str) -> bool:
    packet, _, overload = name.partition(".")
    return overload in ("", *getattr(torch.ops.aten, packet).overloads()) if hasattr(torch.ops.aten, packet) else False


def _is_widened(name: str) -> bool:
    # rms_norm only in newer versions of torch
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCUDA")


def _dropout(value: torch.Tensor, share: float, train: bool) -> torch.Tensor:
    if not train or share in (0, 1):
        return value * (1 - share) if train and share == 1 else value
    out: torch.Tensor = torch.native_dropout(value, share, True)[0]
    return out


def _rms_norm(
    value: torch.Tensor, shape: Sequence[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    """One kernel from torch 2.9 on, which keeps its input and one number per row; layer_norm's keeps two."""
    # autocast has already cast the arguments
    with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
        out: torch.Tensor = torch.native_layer_norm(value, shape, weight, None, 1e-5 if eps is None else eps)[0]
    return out


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None = None,
    *how: object,
    **named: object,
) -> torch.Tensor:
    drop, causal = (*how, 0.0, False)[:2] if not how else (*how, False)[:2]
    fused = query.dim() == 4 and max(query.shape[-1], value.shape[-1]) <= _WIDEST_FUSED_HEAD
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    if fused and not (mask is not None and mask.requires_grad):
        if query.dtype is torch.float32:
            query = _ByRows.apply(query)  # type: ignore[no-untyped-call]
        flash: Kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out: torch.Tensor = flash(query, key, value, 0.0, causal, attn_mask=mask, scale=named.get("scale"))[0]
        return out
    math: Kernel = torch._scaled_dot_product_attention_math
    whole: torch.Tensor = math(query, key, value, mask, drop, causal, **named)[0]
    return whole


class _ByRows(torch.autograd.Function):
    """The query in a row-by-row layout, with the heads of a row side by side.

    The memory-efficient kernel, which takes 32 bits, uses this layout for its result whatever the query's layout is
    (aten/src/ATen/native/transformers/cuda/attention.cu); the fake kernel follows its query, as flash attention does.
    """

    @staticmethod
    def forward(_: object, query: torch.Tensor) -> torch.Tensor:
        """The same memory under other strides."""
        _, heads, rows, width = query.shape
        strides = (rows * heads * width, width, heads * width, 1)
        return query.detach().as_strided(query.shape, strides)

    @staticmethod
    def backward(_: object, *gradients: torch.Tensor) -> torch.Tensor:
        """The gradient as it is."""
        return gradients[0]


def _widening(name: str) -> Kernel:
    plain = getattr(torch.ops.aten, name).int

    def widen(value: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            result: torch.Tensor
            if dtype is None and value.dtype in (torch.bfloat16, torch.float16):
                result = _Widened.apply(value)  # type: ignore[no-untyped-call]
                return result
            result = plain(value, dim, dtype)
            return result

    return widen


class _Widened(torch.autograd.Function):
    """CUDA's softmax reads 16 bits and writes 32 in one kernel, without a wide copy of its input.

    Some versions' fake softmax does so for float16 only; no version's fake log_softmax does.
    """

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 (torch's own context)
        """Memory for the result."""
        result = torch.empty_like(value, dtype=torch.float32)
        ctx.save_for_backward(result)
        ctx.dtype = value.dtype
        return result

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 (torch's own context)
        """Memory for the gradient, as narrow as the input."""
        return torch.empty_like(ctx.saved_tensors[0], dtype=ctx.dtype)


def _in_float32(name: str) -> Kernel:
    packet, _, overload = name.partition(".")
    operation = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def widen(*args: object, **kwargs: object) -> object:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return operation(*map(_wide, args), **{key: _wide(value) for key, value in kwargs.items()})

    return widen


def _wide(item: Any) -> Any:  # noqa: ANN401 (an operation's argument)
    narrow = isinstance(item, torch.Tensor) and item.dtype in (torch.bfloat16, torch.float16)
    return item.float() if narrow else item


class _NoCuda(TorchFunctionMode):
    """Replaces every device named cuda by the CPU; pinning and moving there change nothing."""

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> object:
        if getattr(func, "__name__", "") in ("cuda", "pin_memory"):
            return args[0]
        named = {key: _on_cpu(value) for key, value in (kwargs or {}).items()}
        return func(*(_on_cpu(value) for value in args), **named)


def _on_cpu(item: Any) -> Any:  # noqa: ANN401 (any argument of any torch function)
    if isinstance(item, torch.device) and item.type == "cuda":
        return torch.device("cpu")
    return "cpu" if isinstance(item, str) and item.partition(":")[0] == "cuda" else item


@contextmanager
def _autocast_on_cpu() -> Iterator[None]:
    original: Kernel = torch.autocast.__init__

    def begin(self: torch.autocast, device_type: str, *args: object, **kwargs: object) -> None:
        if device_type == "cuda" and not args and kwargs.get("dtype") is None:
            kwargs["dtype"] = torch.get_autocast_dtype("cuda")
        original(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    torch.autocast.__init__ = begin  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.autocast.__init__ = original  # type: ignore[method-assign]
