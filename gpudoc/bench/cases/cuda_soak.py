"""Matrix multiplication until a card has reached its full heat: the speed at the start and at the end."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpudoc.bench.cases.cuda_matmul import SAMPLE_S, Shape, choose_dtypes, choose_shapes, make_product
from gpudoc.bench.model import Case, RawReading
from gpudoc.bench.sampling import Bench

# the reported parts of the span: a tenth at its start and a tenth at its end
_PART = 0.1
# the worker sends no message while a batch runs
_BATCH_S = 1.0


@dataclass(frozen=True, slots=True)
class _Batch:
    began_s: float
    ended_s: float
    samples: tuple[float, ...]


def run(bench: Bench) -> Iterator[RawReading]:
    """Rows 'soak_start' and 'soak_end' in TFLOP/s: the first and the last tenth of the plan's `soak_s` seconds."""
    gpu, seconds = bench.device, bench.plan.soak_s
    dtype = choose_dtypes(gpu.traits.capability, quick=True)[-1]
    shape = choose_shapes(gpu.traits.sm_count, gpu.memory_free_bytes(), quick=True)[0]
    product = make_product(dtype, shape, gpu.torch_device)
    one_s = max(1e-6, gpu.time_each([product.multiply] * 2)[-1])
    num_products = max(1, round(min(SAMPLE_S, seconds * _PART) / one_s))
    num_samples = max(1, round(min(_BATCH_S, seconds * _PART) / (num_products * one_s)))

    def many() -> None:
        for _ in range(num_products):
            product.multiply()

    batches: list[_Batch] = []
    began = time.monotonic()
    while len(batches) < 2 or time.monotonic() - began < seconds:
        at = time.monotonic()
        times = gpu.time_each([many] * num_samples, spin=False)
        samples = tuple(shape.tera_operations * num_products / one for one in times)
        batches.append(_Batch(at, time.monotonic(), samples))
        bench.is_alive()
    part = (batches[-1].ended_s - began) * _PART
    # at least one batch for each part, and no batch in both
    first = [one for one in batches[:-1] if one.began_s < began + part] or batches[:1]
    last = [one for one in batches[1:] if one.ended_s > batches[-1].ended_s - part and one not in first]
    yield _reading(bench, "soak_start", dtype, shape, first)
    ended = _reading(bench, "soak_end", dtype, shape, last)
    yield dataclasses.replace(ended, corrupted=product.check())


def _reading(bench: Bench, name: str, dtype: str, shape: Shape, batches: Sequence[_Batch]) -> RawReading:
    return RawReading(
        name=name,
        device=bench.device.name,
        parameters={"dtype": dtype, "shape": shape.text, "seconds": bench.plan.soak_s},
        unit="TFLOP/s",
        samples=tuple(sample for batch in batches for sample in batch.samples),
        context=bench.beside.context(),
        round=bench.round,
        began_s=batches[0].began_s,
        ended_s=batches[-1].ended_s,
    )


CASE = Case(
    name="soak",
    meaning="matrix multiplication until the GPU is as hot as it gets",
    # its time comes on top of the time that the other cases share
    share=1e-9,
    absent_because=lambda _: "",
    run=run,
    rows={
        "soak_start": "Matrix products without pause for the time of `--soak`: the first tenth.",
        "soak_end": (
            "The last tenth. If it is 5 % or more slower than the first, heat or the power limit lowers the clocks, "
            "and a long training run goes at this speed. Heat takes 30 to 90 seconds to build up, sometimes longer."
        ),
    },
)
