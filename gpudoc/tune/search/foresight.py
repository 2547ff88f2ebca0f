"""What the plan predicts of a step's memory, worked out without running it: a first probe instead of a calibration."""

from __future__ import annotations

from collections.abc import Callable

from gpudoc.errors import GpudocError
from gpudoc.tune.child.probe import Emit, Prepared
from gpudoc.tune.child.rank import Place
from gpudoc.tune.model.memory import MemoryLine
from gpudoc.tune.search.session import Session
from gpudoc.tune.trial import limit
from gpudoc.tune.trial.messages import End, Request
from gpudoc.units import MIB

# what a trace may take: a GPT-2-small-shaped step takes under 2 s, 7 B parameters under 20 s
PLAN_SECONDS = 15.0
_PLAN_SHARE = 0.15
# besides tensors, on a CPU: code that torch loads with the first step and what a trial holds for training, up to 21 MiB
# for three models (torch 2.13); rounded up so that the first probe fits, whose measure then corrects the rest
_LAZY_BYTES = 34 * MIB
_ORDER_BYTES_PER_SAMPLE = 8


def foresee(session: Session, *, cap: int, capability: tuple[int, int] | None = None) -> MemoryLine | None:
    """The memory near the largest batch as the plan sees it; None, and said, where it cannot be traced in time."""
    extra = {} if capability is None else {"major": float(capability[0]), "minor": float(capability[1])}
    request = Request(
        kind="plan",
        batches=(cap,),
        variant=session.variant,
        accumulate_below=session.accumulate_below,
        extra={**extra, "limit_bytes": float(session.where.limit_bytes or 0)},
    )
    trial = session.plan(request, min(PLAN_SECONDS, max(1.0, _PLAN_SHARE * session.free_s)))
    found = trial.measured
    if not trial.fits or "bytes_per_sample" not in found:
        reason = trial.detail or f"it ended with {trial.end.value}"
        session.say(f"the step cannot be planned, so memory is calibrated by running it: {reason[:160]}")
        return None
    return MemoryLine(
        batch=int(found["batch"]), peak_bytes=int(found["peak_bytes"]), bytes_per_sample=found["bytes_per_sample"]
    )


def run_plan(prepared: Prepared, request: Request, place: Place, emit: Emit) -> None:
    """In a process of its own: trace the step, emit the predicted line as facts, or the reason why there is none."""
    emit({"event": "stage", "stage": "plan", "batch": 0})
    detail = ""
    try:
        for name, value in _predict(prepared, request, place).items():
            emit({"event": "fact", "name": name, "value": value})
    except GpudocError as problem:
        detail = problem.message
    except Exception as problem:
        # a trace goes through the user's model under rules that it was not written for
        detail = f"{type(problem).__name__}: {problem}"
    emit({"event": "end", "end": End.FITS.value, "detail": detail.splitlines()[0][:300] if detail else ""})


def _predict(prepared: Prepared, request: Request, place: Place) -> dict[str, float]:
    baseline = limit.read_process_memory().data_bytes
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
        besides = baseline + _LAZY_BYTES + _ORDER_BYTES_PER_SAMPLE * prepared.workload.num_samples
        held = prepared.samples.held_bytes_per_sample
        return lambda batch: besides + memory.peak_bytes(batch) + held * batch
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

    from gpudoc.train.start.build import may_fuse

    with torch.device("meta"):
        model = prepared.workload.build_model()
    return may_fuse(prepared.workload, model, torch.device(place.device))


def _largest(peak: Callable[[int], int], limit_bytes: int, cap: int) -> int:
    """The largest batch up to `cap` whose peak stays within the limit, 0 for none."""
    from gpudoc.plan.memory import largest_that

    return largest_that(lambda batch: peak(batch) <= limit_bytes, cap)
