"""The losses of a variant's first steps, with real steps on the CPU."""

import math
import shutil

import pytest
import torch
from torch import nn

from gpudoc.tune.child.first_steps import FirstSteps
from gpudoc.tune.child.samples import collect_samples
from gpudoc.tune.child.training import Trainee
from gpudoc.tune.model.losses import BOUNDS, LEAST_STEPS, MOST_STEPS, Reference, agree, explain_losses
from gpudoc.tune.trial.messages import TrialRequest, Variant
from gpudoc.tune.trial.wire import Fact, FirstLosses
from gpudoc.workload.build import load_workload
from tests.tune.planted import write_workload


@pytest.fixture
def first(tmp_path, monkeypatch):
    """The losses, and what was told, of the first steps under a variant."""
    monkeypatch.syspath_prepend(str(tmp_path))
    workload = load_workload(str(write_workload(tmp_path, net={"depth": 2, "spread": 4})))

    def run(variant=Variant(), seed=0, seconds=60.0, change=lambda trainee: None):  # noqa: B008
        told = []
        trainee = Trainee(workload, variant, torch.device("cpu"))
        change(trainee)
        batch = collect_samples(workload).typical(8)
        request = TrialRequest(kind="variant", batches=(8,), seconds_per_batch=seconds, seed=seed)
        return FirstSteps(trainee, told.append, bool).run(batch, request, workload), told

    return run


def facts(told):
    return {event.name: event.value for event in told if isinstance(event, Fact)}


def test_they_are_the_same_each_time_and_learn(first):
    losses, told = first()
    assert len(losses) == MOST_STEPS
    assert losses == first()[0]
    assert losses[-1] < losses[0]
    assert facts(told) == {"draws": 0.0}
    assert [event.losses for event in told if isinstance(event, FirstLosses)] == [losses]


@pytest.mark.parametrize(
    "variant",
    [
        Variant(fused=False),
        Variant(foreach=True),
        Variant(activation_checkpointing=True),
        Variant(activation_checkpointing="selective"),
        Variant(activation_checkpointing="blocks:1"),
    ],
)
def test_what_computes_the_same_in_another_order_agrees_to_fp32(first, variant):
    assert agree(Reference(first()[0]).compare(first(variant)[0], 0.001))


def test_bf16_agrees_within_what_it_allows_and_a_wrong_gradient_does_not(first):
    reference = Reference(first()[0])
    assert agree(reference.compare(first(Variant(precision="bf16"))[0], 0.02))

    def wrong(trainee):
        for parameter in trainee._parts.model.parameters():
            parameter.register_hook(torch.neg)

    assert not agree(reference.compare(first(change=wrong)[0], 0.02))


def test_a_loss_that_is_not_finite_is_told_and_ends_them(first):
    def poison(trainee):
        with torch.no_grad():
            next(trainee._parts.model.parameters()).fill_(math.nan)

    losses, _ = first(change=poison)
    assert len(losses) == 1
    assert math.isnan(losses[0])


def test_steps_whose_gradients_are_not_finite_count_for_nothing(first):
    def explode(trainee):
        next(trainee._parts.model.parameters()).register_hook(lambda gradient: gradient * math.inf)

    assert first(change=explode)[0] == ()


def test_dropout_is_seen_and_drawn_anew_with_another_seed(first):
    def drop(trainee):
        trainee._parts.model.body.insert(1, nn.Dropout(0.5))

    losses, told = first(change=drop)
    assert facts(told) == {"draws": 1.0}
    assert losses == first(change=drop)[0]
    assert losses != first(change=drop, seed=1)[0]


def test_slow_steps_are_fewer(first):
    assert len(first(seconds=0.0)[0]) == LEAST_STEPS


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler on a CPU")
@pytest.mark.parametrize("mode", ["whole", "blocks", "dynamic"])
def test_compiled_steps_learn_what_the_plain_ones_learn(first, mode):
    """Really compiled, on the CPU."""
    compiled, _ = first(Variant(compile=True, compile_mode=mode), change=must_compile)
    found = Reference(first()[0]).compare(compiled, BOUNDS["fp32"])
    assert agree(found), explain_losses(found)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0


def must_compile(trainee):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    assert trainee._parts.is_compiled
