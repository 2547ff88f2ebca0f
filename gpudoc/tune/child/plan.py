"""The trial of kind `plan`: traces the step and predicts its memory without running it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpudoc.errors import GpudocError
from gpudoc.policy import Policy
from gpudoc.process.memory import read_process_memory
from gpudoc.tune.child.probe import Prepared
from gpudoc.tune.child.rank import take_device
from gpudoc.tune.trial.messages import POLICY, RUNG, PlanAnswer, PlanQuestion, TrialRequest
from gpudoc.tune.trial.wire import Emit, Fact, LifeSign, RankEnd, RankPlace, TrialStage
from gpudoc.units import MIB

if TYPE_CHECKING:
    from gpudoc.plan.need import Need
    from gpudoc.plan.planning import Plan

# on a CPU, in addition to tensors: code that torch loads with the first step and memory that a trial holds for train.
# Up to 21 MiB for three models (torch 2.13), rounded up so that the first probe fits; its measurement corrects the rest
_LAZY_BYTES = 34 * MIB
_ORDER_BYTES_PER_SAMPLE = 8
# a fit holds 2 MiB more than the default trial; a large step's own scratch took up to 2.4 MiB more than a small one's
# for three models (torch 2.13)
_SEEN_MARGIN_BYTES = 5 * MIB


def run_plan(prepared: Prepared, request: TrialRequest, place: RankPlace, emit: Emit) -> None:
    """Trace the step and emit the predicted line as facts; the end's detail gives the reason if there is none."""
    emit(TrialStage(stage="plan"))
    detail = ""
    try:
        # a trace needs no GPU, but PyTorch 2.14 opens a context for one: this makes it the requested GPU
        take_device(place)
        predict = _WAYS[_question(request).asks]
        for name, value in predict(prepared, request, place, emit).items():
            emit(Fact(name=PlanAnswer(name), value=value))
    except GpudocError as problem:
        detail = problem.message
    except Exception as problem:
        # a trace runs the user's model under rules that it was not written for
        detail = f"{type(problem).__name__}: {problem}"
    emit(RankEnd(detail=detail.splitlines()[0][:300] if detail else ""))


class _Signs:
    """A sign of life for each plan that is begun."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit

    def say(self, text: str) -> None:
        del text
        self._emit(LifeSign())

    def advance(self, done: float, total: float, text: str) -> None:
        """Does nothing: a plan has no steps to show."""


def _question(request: TrialRequest) -> PlanQuestion:
    assert request.question is not None
    return request.question


def _ladder(prepared: Prepared, request: TrialRequest, place: RankPlace, emit: Emit) -> dict[str, float]:
    """The peaks after each change that would make batch 1 fit on this GPU, each on top of those before it."""
    import torch

    from gpudoc import plan
    from gpudoc.knowledge.cards import context_bytes, find_card
    from gpudoc.plan.target import PlanTarget

    card = find_card(torch.cuda.get_device_name(place.device))
    memory_bytes = _question(request).limit_bytes + context_bytes(None if card is None else card.capability)
    target = PlanTarget(name="this GPU", memory_bytes=memory_bytes, card=card)
    rungs = plan.ladder(prepared.workload, target, request.variant.precision, _Signs(emit))
    context = memory_bytes - target.allocator_bytes
    return {f"{RUNG}{rung.change}": float(rung.peak_bytes - context) for rung in rungs}


def _policy(prepared: Prepared, request: TrialRequest, place: RankPlace, emit: Emit) -> dict[str, float]:
    """The cheapest policy with which the request's batch fits, as its name and the time factor of its steps.

    For `most`, the batch is the largest up to the request's that fits with any policy.
    """
    from gpudoc.knowledge.cards import find_card
    from gpudoc.plan.policies import Question, cheapest
    from gpudoc.policy import SELECTIVE
    from gpudoc.workload.recompute import policies_of

    is_most = _question(request).asks == "most"
    accumulation = min(2, request.num_micros(1 if is_most else request.batches[0]))

    @functools.cache
    def plan_of(policy: Policy) -> Plan | None:
        emit(LifeSign())
        variant = request.variant.model_copy(update={"activation_checkpointing": policy})
        return _planned(prepared, request.model_copy(update={"variant": variant}), place, accumulation)

    card = None
    if place.device.startswith("cuda"):
        import torch

        card = find_card(torch.cuda.get_device_name(place.device))
    is_selective, num_blocks = policies_of(prepared.workload)
    batch = request.batches[0]
    if is_most:
        # the plain step keeps most and whole blocks least: a part of them holds no larger batch than all
        plans = map(plan_of, (True, SELECTIVE) if is_selective else (True,))
        batch = max((_largest(prepared, request, place, plan) for plan in plans if plan is not None), default=0)
    if batch < 1:
        return {}
    found = cheapest(
        Question(
            plan_of=plan_of,
            left_bytes=lambda plan: _left_bytes(prepared, request, place, plan, batch),
            is_selective=is_selective,
            num_blocks=num_blocks,
            batch=batch,
            card=card,
        )
    )
    return {} if found is None else {f"{POLICY}{found.policy}".lower(): found.slowdown}


def _left_bytes(prepared: Prepared, request: TrialRequest, place: RankPlace, plan: Plan, batch: int) -> int:
    """The bytes that the plan leaves of the limit at `batch`; below zero if it does not fit."""
    limit_bytes = _question(request).limit_bytes
    if place.device.startswith("cuda"):
        return limit_bytes - _need(plan, request).reserved_bytes(batch)
    return limit_bytes - _peak_on_cpu(prepared, plan)(batch)


def _largest(prepared: Prepared, request: TrialRequest, place: RankPlace, plan: Plan) -> int:
    """The largest batch up to the request's with which the plan fits; 0 for none."""
    from gpudoc.plan.memory import largest_that

    if place.device.startswith("cuda"):
        return _need(plan, request).largest_batch(request.batches[0])
    limit_bytes, peak = _question(request).limit_bytes, _peak_on_cpu(prepared, plan)
    return largest_that(lambda batch: peak(batch) <= limit_bytes, request.batches[0])


def _predict(prepared: Prepared, request: TrialRequest, place: RankPlace, emit: Emit) -> dict[str, float]:
    del emit
    predict = _on_gpu if place.device.startswith("cuda") else _on_cpu
    found = predict(prepared, request, place, 1)
    if request.num_micros(int(found["batch"])) > 1:
        found = predict(prepared, request, place, 2)
    return found


def _on_gpu(prepared: Prepared, request: TrialRequest, place: RankPlace, accumulation: int) -> dict[str, float]:
    """The state of PyTorch's allocator after all events of a trial: its reserved memory, including holes."""
    limit_bytes = _question(request).limit_bytes
    need = _need(_planned(prepared, request, place, accumulation), request)
    cap = request.batches[0]
    largest = need.largest_batch(cap)
    batch = max(1, largest)
    slope = _slope(lambda batch: need.replay(batch).reserved_peak_bytes, batch)
    peak = float(need.reserved_bytes(batch))
    if 0 < largest < cap:
        # one more sample fails: apart from less than one sample's bytes, the memory left over is in holes
        peak = max(peak, limit_bytes - slope)
    return {"batch": float(batch), "peak_bytes": peak, "bytes_per_sample": slope}


def _on_cpu(prepared: Prepared, request: TrialRequest, place: RankPlace, accumulation: int) -> dict[str, float]:
    """The batch at which the process's data reaches the limit."""
    from gpudoc.plan.memory import largest_that

    peak = _peak_on_cpu(prepared, _planned(prepared, request, place, accumulation))
    limit_bytes = _question(request).limit_bytes
    # memory on top of tensors is known better if steps ran already
    seen = _question(request).seen
    over = 0 if seen is None else peak(seen[0]) - seen[1] - _SEEN_MARGIN_BYTES
    less = min(max(0, over), _LAZY_BYTES)
    batch = max(1, largest_that(lambda batch: peak(batch) - less <= limit_bytes, request.batches[0]))
    return {"batch": float(batch), "peak_bytes": float(peak(batch) - less), "bytes_per_sample": _slope(peak, batch)}


def _need(plan: Plan, request: TrialRequest) -> Need:
    """The plan's need of a GPU with the request's limit."""
    from gpudoc.plan.need import Need

    question = _question(request)
    expandable = request.variant.allocator == "expandable"
    return Need(plan, question.limit_bytes, question.capability, expandable=expandable)


def _peak_on_cpu(prepared: Prepared, plan: Plan) -> Callable[[int], int]:
    """A function from the batch to the data bytes of a process that trains with this plan."""
    fixed = read_process_memory().data_bytes + _LAZY_BYTES + prepared.left_bytes
    fixed += _ORDER_BYTES_PER_SAMPLE * prepared.workload.num_samples
    held = prepared.samples.held_bytes_per_sample
    return lambda batch: fixed + plan.memory.peak_bytes(batch) + held * batch


def _planned(prepared: Prepared, request: TrialRequest, place: RankPlace, accumulation: int) -> Plan:
    from gpudoc import plan
    from gpudoc.plan.savings import with_small_state

    variant = request.variant
    settings = plan.PlanSettings(
        like="cuda" if place.device.startswith("cuda") else "cpu",
        precision=variant.precision,
        activation_checkpointing=variant.activation_checkpointing,
        accumulation=accumulation,
        channels_last=variant.channels_last,
        fused=variant.fused and not variant.foreach and _fuses(prepared, place),
    )
    found = plan.predict(prepared.workload, settings)
    return with_small_state(found) if variant.optimizer_state == "8bit" else found


def _slope(peak: Callable[[int], int], batch: int) -> float:
    """Bytes per sample around `batch`."""
    away = max(8, batch // 8)
    low, high = (batch - away, batch) if batch > away else (batch, batch + away)
    return (peak(high) - peak(low)) / (high - low)


def _fuses(prepared: Prepared, place: RankPlace) -> bool:
    import torch

    from gpudoc.train.start.levers import may_fuse

    with torch.device("meta"):
        model = prepared.workload.build_model()
    return may_fuse(prepared.workload, model, torch.device(place.device))


_WAYS: dict[str, Callable[[Prepared, TrialRequest, RankPlace, Emit], dict[str, float]]] = {
    "largest": _predict,
    "policy": _policy,
    "most": _policy,
    "ladder": _ladder,
}
