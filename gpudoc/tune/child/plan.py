"""The trial of kind `plan`: traces the step and predicts its memory without running it."""

from __future__ import annotations

from collections.abc import Callable

from gpudoc.errors import GpudocError
from gpudoc.process.memory import read_process_memory
from gpudoc.tune.child.probe import Prepared
from gpudoc.tune.child.rank import take_device
from gpudoc.tune.trial.messages import Request
from gpudoc.tune.trial.wire import Emit, Ended, Fact, Place, Stage
from gpudoc.units import MIB

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
    baseline = read_process_memory().data_bytes
    limit_bytes = int(request.extra["limit_bytes"])
    cap = request.batches[0]
    peak = _peaks(prepared, request, place, baseline, accumulation=1)
    batch = _largest(peak, limit_bytes, cap)
    if request.num_micros(batch) > 1:
        peak = _peaks(prepared, request, place, baseline, accumulation=2)
        batch = _largest(peak, limit_bytes, cap)
    batch = max(1, batch)
    away = max(8, batch // 8)
    low, high = (batch - away, batch) if batch > away else (batch, batch + away)
    slope = (peak(high) - peak(low)) / (high - low)
    return {"batch": float(batch), "peak_bytes": float(peak(batch)), "bytes_per_sample": slope}


def _peaks(
    prepared: Prepared, request: Request, place: Place, baseline: int, *, accumulation: int
) -> Callable[[int], int]:
    """The peak at any batch as a trial would measure it: reserved bytes on CUDA, data of the process on a CPU."""
    from gpudoc import plan
    from gpudoc.knowledge.cards import cublas_workspace_bytes
    from gpudoc.plan.allocator import replay

    variant = request.variant
    on_gpu = place.device.startswith("cuda")
    memory = plan.predict(
        prepared.workload,
        plan.Settings(
            like="cuda" if on_gpu else "cpu",
            precision=variant.precision,
            activation_checkpointing=variant.activation_checkpointing,
            accumulation=accumulation,
            channels_last=variant.channels_last,
            fused=variant.fused and _fuses(prepared, place),
        ),
    )
    if not on_gpu:
        fixed = baseline + _LAZY_BYTES + _ORDER_BYTES_PER_SAMPLE * prepared.workload.num_samples
        held = prepared.samples.held_bytes_per_sample
        return lambda batch: fixed + memory.peak_bytes(batch) + held * batch
    extra = request.extra
    workspace = cublas_workspace_bytes((int(extra["major"]), int(extra["minor"])) if "major" in extra else None)
    events = [int(event) for event in memory.events]
    expandable = variant.allocator == "expandable"

    def reserved(batch: int) -> int:
        sizes = [*memory.sizes(batch).tolist(), workspace]
        return replay(sizes, [len(sizes) - 1, *events], expandable=expandable).reserved_peak_bytes

    return reserved


def _fuses(prepared: Prepared, place: Place) -> bool:
    import torch

    from gpudoc.train.start.parts import may_fuse

    with torch.device("meta"):
        model = prepared.workload.build_model()
    return may_fuse(prepared.workload, model, torch.device(place.device))


def _largest(peak: Callable[[int], int], limit_bytes: int, cap: int) -> int:
    """The largest batch up to `cap` whose peak stays within the limit, 0 for none."""
    from gpudoc.plan.memory import largest_that

    return largest_that(lambda batch: peak(batch) <= limit_bytes, cap)
