"""Whether a copy or a product holds the right numbers: a fast wrong answer is not a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

NUM_ROWS, NUM_COLUMNS = 8, 64
NUM_WORDS = 4096


def check_product(
    left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, input_epsilon: float = 0.0, scale: float = 1.0
) -> str:
    """'' if some rows and columns of `out` agree with float64 within rounding, otherwise the size of the error.

    `input_epsilon` is the relative rounding of the inputs inside the unit (2^-10 for tf32); `scale` multiplies it.
    """
    import torch

    rows = spread(left.shape[0], NUM_ROWS).to(left.device)
    columns = spread(right.shape[1], NUM_COLUMNS).to(left.device)
    few_left, few_right = left[rows].double(), right[:, columns].double()
    exact = few_left @ few_right * scale
    error = (out[rows][:, columns].double() - exact).abs().max().item()
    if not out.dtype.is_floating_point:
        return "" if error == 0 else f"an integer product is off by {error:g}"
    length = left.shape[1]
    size = scale * (few_left.square().mean() * few_right.square().mean()).sqrt().item()
    # rounding of the result; of the inputs (random, so it grows with the root); of an fp32 sum in any order
    allowed = (
        torch.finfo(out.dtype).eps * exact.abs().max().item()
        + 8 * length**0.5 * size * max(input_epsilon, torch.finfo(torch.float32).eps)
        + length * size * torch.finfo(torch.float32).eps
    )
    return "" if error <= allowed else f"the product is off by {error:.3g}, rounding explains {allowed:.3g}"


def check_copy(source: torch.Tensor, target: torch.Tensor) -> str:
    """'' if two byte tensors on any devices are equal, by the sum of all words and by single words; else the error."""
    import torch

    words = [tensor.view(torch.int64) for tensor in (source, target)]
    sums = [int(one.sum().item()) for one in words]
    places = spread(words[0].numel(), NUM_WORDS)
    picked = [one[places.to(one.device)].cpu() for one in words]
    if sums[0] == sums[1] and torch.equal(picked[0], picked[1]):
        return ""
    return f"the copy of {source.numel()} bytes differs from its source"


def spread(length: int, count: int) -> torch.Tensor:
    """`count` evenly spaced indices from 0 to the last of `length`; shape (count,), int64."""
    import torch

    # in integers, because from 2^24 on float32 cannot hold every index, and rounds the last one past the end
    return torch.arange(count) * (length - 1) // (count - 1)
