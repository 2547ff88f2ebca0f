"""The trial of kind `plan`: traces the step and predicts its memory without running it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpudoc.errors import GpudocError
from gpudoc.process.memory import read_process_memory
from gpudoc.tune.child.probe import Prepared
from gpudoc.tune.child.rank import take_device
from gpudoc.tune.trial.messages import Request
from gpudoc.tune.trial.wire import Emit, Ended, Fact, Place, Stage
from gpudoc.units import MIB

if TYPE_CHECKING:
    from gpudoc.plan.planning import Plan

# on a CPU, in addition to tensors: code that torch loads with the first step and what a trial holds for training. Up to
# 21 MiB for three models (torch 2.13), rounded up so that the first probe fits; what it measures corrects the rest
_LAZY_BYTES = 34 * MIB
_ORDER_BYTES_PER_SAMPLE = 8


def run_plan(prepared: Prepared, request: Request, place: Place, emit: Emit) -> None:
    """Trace the step and emit the predicted line as facts, or in the end's detail the reason why there is none."""
    emit(Stage(stage="plan"))
    detail = ""
    try:
        # a trace needs no GPU, but PyTorch 2.14 opens a context for one: then the one that was asked for
        take_device(place)
        for name, value in _predict(prepared, request, place).items():
            emit(Fact(name=name, value=value))
    except GpudocError as problem:
        detail = problem.message
    except Exception as problem:
        # a trace goes through the user's model under rules that it was not written for
        detail = f"{type(problem).__name__}: {problem}"
    emit(Ended(detail=detail.splitlines()[0][:300] if detail else ""))


def _predict(prepared: Prepared, request: Request, place: Place) -> dict[str, float]:
    predict = _on_gpu if place.device.startswith("cuda") else _on_cpu
    found = predict(prepared, request, place, 1)
    if request.num_micros(int(found["batch"])) > 1:
        found = predict(prepared, request, place, 2)
    return found


def _on_gpu(prepared: Prepared, request: Request, place: Place, accumulation: int) -> dict[str, float]:
    """Where PyTorch's allocator ends, told a trial's whole story: what it reserves, and what lies in holes."""
    from gpudoc.plan.need import Need

    extra, limit_bytes = request.extra, int(request.extra["limit_bytes"])
    capability = (int(extra["major"]), int(extra["minor"])) if "major" in extra else None
    plan = _planned(prepared, request, place, accumulation)
    need = Need(plan, limit_bytes, capability, expandable=request.variant.allocator == "expandable")
    cap = request.batches[0]
    largest = need.largest_batch(cap)
    batch = max(1, largest)
    slope = _slope(lambda batch: need.replay(batch).reserved_peak_bytes, batch)
    peak = float(need.reserved_bytes(batch))
    if 0 < largest < cap:
        # one more fails: what is free beside this one lies in holes, but for less than a sample's
        peak = max(peak, limit_bytes - slope)
    return {"batch": float(batch), "peak_bytes": peak, "bytes_per_sample": slope}


def _on_cpu(prepared: Prepared, request: Request, place: Place, accumulation: int) -> dict[str, float]:
    """Where the data of the process reaches the limit."""
    from gpudoc.plan.memory import largest_that

    memory = _planned(prepared, request, place, accumulation).memory
    fixed = read_process_memory().data_bytes + _LAZY_BYTES + prepared.left_bytes
    fixed += _ORDER_BYTES_PER_SAMPLE * prepared.workload.num_samples
    held = prepared.samples.held_bytes_per_sample

    def peak(batch: int) -> int:
        return fixed + memory.peak_bytes(batch) + held * batch

    limit_bytes = int(request.extra["limit_bytes"])
    batch = max(1, largest_that(lambda batch: peak(batch) <= limit_bytes, request.batches[0]))
    return {"batch": float(batch), "peak_bytes": float(peak(batch)), "bytes_per_sample": _slope(peak, batch)}


def _planned(prepared: Prepared, request: Request, place: Place, accumulation: int) -> Plan:
    from gpudoc import plan

    variant = request.variant
    settings = plan.Settings(
        like="cuda" if place.device.startswith("cuda") else "cpu",
        precision=variant.precision,
        activation_checkpointing=variant.activation_checkpointing,
        accumulation=accumulation,
        channels_last=variant.channels_last,
        fused=variant.fused and _fuses(prepared, place),
    )
    return plan.predict(prepared.workload, settings)


def _slope(peak: Callable[[int], int], batch: int) -> float:
    """Bytes a sample around `batch`."""
    away = max(8, batch // 8)
    low, high = (batch - away, batch) if batch > away else (batch, batch + away)
    return (peak(high) - peak(low)) / (high - low)


def _fuses(prepared: Prepared, place: Place) -> bool:
    import torch

    from gpudoc.train.start.parts import may_fuse

    with torch.device("meta"):
        model = prepared.workload.build_model()
    return may_fuse(prepared.workload, model, torch.device(place.device))
