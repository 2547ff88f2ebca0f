"""Matrix multiplication on the GPU: a burst from rest and two seconds without pause, in every type the card has.

Shapes are chosen so that whole waves of 128 x 256 tiles fill the multiprocessors; powers of two rarely do.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpudoc.bench.cases.checks import check_product
from gpudoc.bench.gpu import sample_gpu
from gpudoc.bench.model import Case, RawReading
from gpudoc.bench.sampling import Bench, Row
from gpudoc.units import MIB

if TYPE_CHECKING:
    import torch

TILE_ROWS, TILE_COLUMNS = 128, 256
BURST, BURST_S = 10, 0.3
REST_S = 0.3
SUSTAINED_S, QUICK_SUSTAINED_S = 2.0, 0.5
# one sample of sustained work: long compared with the events, short compared with changes of the clock
SAMPLE_S = 0.05
TF32_EPSILON = 2.0**-10
# Hopper's sums in the tensor core keep about 14 bits of each addition (DeepSeek-V3 technical report, 3.3.2)
FAST_EPSILON = 2.0**-7
# types, with the lowest capability for which torch multiplies them (on tensor cores, if any)
FIRST_CAPABILITY = {"fp32": (5, 0), "tf32": (8, 0), "fp16": (5, 3), "bf16": (8, 0), "fp8": (8, 9), "int8": (7, 5)}


@dataclass(frozen=True, slots=True)
class Shape:
    """(rows x depth) times (depth x columns)."""

    rows: int
    columns: int
    depth: int

    @property
    def text(self) -> str:
        """'8448x8192x4096': rows, columns, depth."""
        return f"{self.rows}x{self.columns}x{self.depth}"

    @property
    def tera_operations(self) -> float:
        """10^12 operations of one product, two for each multiply-add."""
        return 2.0 * self.rows * self.columns * self.depth / 1e12


@dataclass(frozen=True, slots=True)
class Product:
    """One product ready to run: the function to call, and the check of its result."""

    multiply: Callable[[], object]
    check: Callable[[], str]


def wave_shape(sm_count: int, side: int, depth: int) -> Shape:
    """The nearly square shape about `side` wide whose tiles fill `sm_count` in a whole number of waves."""
    best = (float("inf"), 1, 1)
    for down in range(1, 2 * side // TILE_ROWS + 1):
        for across in range(1, 2 * side // TILE_COLUMNS + 1):
            if (down * across) % sm_count:
                continue
            distance = abs(down * TILE_ROWS / side - 1) + abs(across * TILE_COLUMNS / side - 1)
            best = min(best, (distance, down, across))
    if best[0] == float("inf"):
        return Shape(side, side, depth)
    return Shape(best[1] * TILE_ROWS, best[2] * TILE_COLUMNS, depth)


def choose_shapes(sm_count: int, memory_bytes: int, quick: bool) -> tuple[Shape, ...]:
    """Two shapes of whole waves and one power of two; smaller ones on cards with little free memory."""
    side = 8192 if memory_bytes > 4096 * MIB else 2048
    shapes = (wave_shape(sm_count, side, side), wave_shape(sm_count, side // 2, side), Shape(side, side, side))
    chosen = shapes[:1] if quick else shapes
    return tuple(dict.fromkeys(chosen))


def choose_dtypes(capability: tuple[int, int], quick: bool = False) -> tuple[str, ...]:
    """The types that a card of this capability multiplies; if `quick`, only the usual types of training."""
    every = tuple(dtype for dtype, first in FIRST_CAPABILITY.items() if capability >= first)
    if not quick:
        return every
    half = "bf16" if "bf16" in every else "fp16"
    return tuple(dtype for dtype in every if dtype in ("fp32", "tf32", half))


def run(bench: Bench) -> Iterator[RawReading]:
    """Rows 'matmul' in TFLOP/s (TOP/s for int8) with dtype, shape and mode 'burst' or 'sustained'."""
    gpu = bench.device
    shapes = choose_shapes(gpu.traits.sm_count, gpu.memory_free_bytes(), bench.plan.quick)
    dtypes = choose_dtypes(gpu.traits.capability, bench.plan.quick)
    sustained_s = QUICK_SUSTAINED_S if bench.plan.quick else SUSTAINED_S
    burst_s = max(0.1, (bench.budget_s / len(dtypes) - sustained_s) / len(shapes) - REST_S)
    for dtype in dtypes:
        try:
            yield from _one_type(bench, dtype, shapes, burst_s, sustained_s)
        except (RuntimeError, AttributeError, TypeError) as error:
            # the library lacks this type on this card; if the card is lost, synchronize fails and ends the case
            gpu.synchronize()
            bench.leave_out(f"matmul {dtype}", str(error).strip().splitlines()[0])


def _one_type(
    bench: Bench, dtype: str, shapes: tuple[Shape, ...], burst_s: float, sustained_s: float
) -> Iterator[RawReading]:
    best: tuple[float, Shape] | None = None
    for shape in shapes:
        product = make_product(dtype, shape, bench.device.torch_device)
        time.sleep(REST_S)
        reading = _burst(bench, dtype, shape, product, burst_s)
        yield dataclasses.replace(reading, corrupted=product.check())
        fastest = max(reading.samples)
        best = max(best, (fastest, shape), key=lambda pair: pair[0]) if best else (fastest, shape)
    assert best is not None
    product = make_product(dtype, best[1], bench.device.torch_device)
    reading = _sustained(bench, dtype, best[1], product, sustained_s)
    yield dataclasses.replace(reading, corrupted=product.check())


def _row(bench: Bench, dtype: str, shape: Shape, mode: str) -> Row:
    unit = "TOP/s" if dtype == "int8" else "TFLOP/s"
    parameters = {"dtype": dtype, "shape": shape.text, "mode": mode}
    return Row(name="matmul", unit=unit, parameters=parameters, device=bench.device.name)


def _burst(bench: Bench, dtype: str, shape: Shape, product: Product, seconds: float) -> RawReading:
    import torch

    gpu = bench.device
    # twice the cache, so that it holds no input of the next product
    flush = torch.zeros(max(2 * gpu.traits.l2_bytes, 32 * MIB), dtype=torch.uint8, device=gpu.torch_device)
    one_s = _seconds_of_one(bench, product)
    num_products = max(3, min(BURST, round(BURST_S / one_s)))

    def batch() -> list[float]:
        times = gpu.time_each([product.multiply] * num_products, between=flush.zero_)
        return [shape.tera_operations / seconds for seconds in times]

    return sample_gpu(bench, _row(bench, dtype, shape, "burst"), batch, seconds)


def _sustained(bench: Bench, dtype: str, shape: Shape, product: Product, seconds: float) -> RawReading:
    """Samples of SAMPLE_S without pause; the first half of the span only warms the card up."""
    gpu = bench.device
    one_s = _seconds_of_one(bench, product)
    num_products = max(1, round(SAMPLE_S / one_s))
    num_samples = max(3, round(seconds / 2 / (num_products * one_s)))

    def many() -> None:
        for _ in range(num_products):
            product.multiply()

    def batch() -> list[float]:
        times = gpu.time_each([many] * num_samples, spin=False)
        return [shape.tera_operations * num_products / one for one in times]

    # the first batch is dropped as warm-up; it is the first half
    return sample_gpu(bench, _row(bench, dtype, shape, "sustained"), batch, seconds)


def _seconds_of_one(bench: Bench, product: Product) -> float:
    return max(1e-6, bench.device.time_each([product.multiply] * 2)[-1])


def make_product(dtype: str, shape: Shape, device: str) -> Product:
    """Random operands of `dtype`; RuntimeError if this card or library has no such product."""
    import torch

    left = torch.randn(shape.rows, shape.depth, device=device)
    right = torch.randn(shape.depth, shape.columns, device=device)
    match dtype:
        case "fp32" | "tf32":
            return _plain(left, right, tf32=dtype == "tf32")
        case "fp16":
            return _plain(left.half(), right.half())
        case "bf16":
            return _plain(left.bfloat16(), right.bfloat16())
        case "int8":
            return _int8(left, right)
        case _:
            return _fp8(left, right)


def _plain(left: torch.Tensor, right: torch.Tensor, tf32: bool = False) -> Product:
    import torch

    out = torch.empty(left.shape[0], right.shape[1], dtype=left.dtype, device=left.device)
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    # 16-bit sums may be split and added in 16 bits; that adds the result's own rounding a few more times
    epsilon = TF32_EPSILON if tf32 else float(torch.finfo(left.dtype).eps)
    return Product(lambda: torch.mm(left, right, out=out), lambda: check_product(left, right, out, epsilon))


def _int8(left: torch.Tensor, right: torch.Tensor) -> Product:
    import torch

    small_left, small_right = (tensor.mul(32).clamp(-127, 127).to(torch.int8) for tensor in (left, right))
    column_major = small_right.t().contiguous().t()
    out = torch.empty(left.shape[0], right.shape[1], dtype=torch.int32, device=left.device)
    return Product(
        lambda: torch._int_mm(small_left, column_major, out=out), lambda: check_product(small_left, small_right, out)
    )


def _fp8(left: torch.Tensor, right: torch.Tensor) -> Product:
    import torch

    low_left, low_right = (tensor.to(torch.float8_e4m3fn) for tensor in (left, right.t().contiguous()))
    one = torch.ones((), device=left.device)
    out = torch.empty(left.shape[0], right.shape[1], dtype=torch.bfloat16, device=left.device)

    def multiply() -> object:
        # training in fp8 uses fast accumulation; without it Hopper also adds outside of the tensor cores
        return torch._scaled_mm(
            low_left, low_right.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True, out=out
        )

    # indexing is not defined for fp8, so the check gets the same values in half precision
    return Product(multiply, lambda: check_product(low_left.half(), low_right.t().half(), out, FAST_EPSILON))


CASE = Case(
    name="matmul",
    meaning="matrix multiplication on the GPU",
    share=5.0,
    absent_because=lambda bench: (
        "less than 1 GiB of the GPU's memory is free" if bench.device.memory_free_bytes() < 1024 * MIB else ""
    ),
    run=run,
    rows={
        "matmul": (
            "Multiplies matrices whose tiles fill the GPU, by type: ten products from rest (`burst`), then without "
            "pause for two seconds (`sustained`). Sustained below burst: the power limit lowers the clocks. Heat "
            "builds up over a minute or more, so these two seconds say nothing about the cooling."
        ),
    },
)
