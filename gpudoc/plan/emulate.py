"""Overrides for a trace: they imitate a device's library where fake CPU tensors would take another path.

An override is registered with torch's dispatcher, so it applies wherever the operation is called.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

Kernel = Callable[..., Any]

# the mode number of an LSTM in aten's RNN layer operations
_LSTM_MODE = 2


@contextmanager
def overriding(kernels: Sequence[tuple[str, str, Kernel]]) -> Iterator[None]:
    """Register (operation, dispatch key, kernel) while the block runs; skips operations that this torch lacks."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            # one override replaces torch's own kernel, on purpose and until the block ends
            warnings.filterwarnings("ignore", message="(?s).*Overriding a previously registered kernel")
            for name, key, kernel in kernels:
                if torch._C._dispatch_has_kernel(f"aten::{name}"):
                    library.impl(name, kernel, key)
        yield
    finally:
        library._destroy()


@contextmanager
def like_cpu() -> Iterator[None]:
    """Make fake tensors follow the paths of real CPU tensors."""
    kernels = [("lstm.input", "AutogradCPU", onednn_lstm)] if _has_onednn_lstm() else []
    with overriding(kernels):
        yield


@contextmanager
def movable_modules() -> Iterator[None]:
    """Let `module.to(dtype)` work on fake parameters, which torch tries to swap but cannot."""
    original = nn.Module._apply

    def apply(module: nn.Module, change: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
        for child in module.children() if recurse else ():
            apply(child, change)
        for parameter in module._parameters.values():
            if parameter is not None:
                with torch.no_grad():
                    parameter.data = change(parameter.data)
                    parameter.grad = None if parameter.grad is None else change(parameter.grad)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = change(buffer)
        return module

    nn.Module._apply = apply  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module._apply = original  # type: ignore[method-assign]


def onednn_lstm(
    value: torch.Tensor,
    states: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    *how: Any,  # noqa: ANN401 (the rest of torch.lstm's arguments)
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """torch.lstm layer by layer, with one fused operation for each, as oneDNN and cuDNN compute it."""
    has_biases, layers, drop, train, bidirectional, batch_first = how
    if states[0].shape[2] != states[1].shape[2]:
        # with projections neither library has a fused operation: torch unrolls the steps
        unrolled: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = torch.ops.aten.lstm.input.decompose(
            value, states, weights, *how
        )
        return unrolled
    value = (value.transpose(0, 1) if batch_first else value).contiguous()
    hidden, cell = states[0].contiguous(), states[1].contiguous()
    directions, per_layer = 1 + bidirectional, 4 if has_biases else 2
    last: list[tuple[torch.Tensor, torch.Tensor]] = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            own = list(weights[index * per_layer : (index + 1) * per_layer])
            own += [torch.zeros_like(own[0][:, 0])] * (4 - len(own))
            out, h, c, _ = torch.ops.aten.mkldnn_rnn_layer(
                *(value, *own, hidden[index], cell[index], direction > 0, [], _LSTM_MODE, hidden.shape[2], layers),
                *(has_biases, bidirectional, False, train),
            )
            outputs.append(out)
            last.append((h, c))
        value = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if drop and train and layer < layers - 1:
            value = torch.dropout(value, drop, True)
    value = value.transpose(0, 1) if batch_first else value
    return value, torch.stack([h for h, _ in last]), torch.stack([c for _, c in last])


def _has_onednn_lstm() -> bool:
    # torch 2.6 has the operation without a fake implementation of its backward; there an LSTM is unrolled
    backward = "aten::mkldnn_rnn_layer_backward"
    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return has_onednn and torch._C._dispatch_has_kernel_for_dispatch_key(backward, "Meta")
