from dataclasses import replace

import pytest

from gpudoc.plan.memory import WorkModel, join
from gpudoc.plan.need import Need
from gpudoc.plan.planning import Plan
from gpudoc.plan.tape import StepPhase, Storage, StorageKind, Tape
from gpudoc.plan.target import parse_target
from gpudoc.units import GIB, MIB

MARKS = {"cuBLAS, forward": 1, "cuBLAS, backward": 2}


def plan_of(fixed, per_sample):
    def tape(batch):
        blocks = [Storage(fixed, "a", "", StepPhase.BUILD), Storage(per_sample * batch, "b", "", StepPhase.FORWARD)]
        return Tape(batch, blocks=blocks, events=[0, 1, ~1], marks=dict(MARKS))

    memory = join([tape(2), tape(4)], "cuda")
    return Plan(memory=memory, work=WorkModel(batches=(2, 4), works=((), ())), num_parameters=1)


def test_the_largest_batch_is_what_the_allocator_can_hold():
    need = Need.on(plan_of(100 * MIB, 32 * MIB), parse_target("4GiB"))
    available = 4 * GIB - 692 * MIB  # the largest known context, for want of a card
    workspaces = 2 * 32 * MIB  # of the threads of forward and backward
    assert need.largest_batch() == (available - workspaces - 100 * MIB) // (32 * MIB)
    assert need.largest_near(20, 0.5) < need.largest_batch()


def test_the_peak_counts_context_and_workspaces():
    need = Need.on(plan_of(100 * MIB, 32 * MIB), parse_target("4GiB"))
    assert need.peak_bytes(2) == (692 + 2 * 32 + 100 + 64) * MIB


def test_a_plan_larger_than_the_target_still_says_what_it_would_need():
    need = Need.on(plan_of(8 * GIB, MIB), parse_target("4GiB"))
    assert need.largest_batch() == 0
    assert need.peak_bytes(1) > 8 * GIB


def steps_plan(*, stays=False, num_samples=None):
    """Weights; two steps with an input, an activation and, in the first, an optimizer's state; an evaluation."""

    def tape(batch):
        sizes = [10 * MIB, batch * MIB, 2 * batch * MIB, 20 * MIB, batch * MIB, 2 * batch * MIB, 4 * batch * MIB]
        phases = [
            StepPhase.BUILD,
            StepPhase.INPUTS,
            StepPhase.FORWARD,
            StepPhase.OPTIMIZER,
            StepPhase.INPUTS,
            StepPhase.FORWARD,
            StepPhase.EVALUATE,
        ]
        blocks = [Storage(size, str(at), "", phase) for at, (size, phase) in enumerate(zip(sizes, phases, strict=True))]
        events = [0, 1, 2, ~2, ~1, 3, 4, 5, ~4, *([] if stays else [~5]), 6]
        marks = {"built": 1, "step 1": 6, "step 2": len(events) - 1, "evaluated": len(events)}
        return Tape(batch, blocks=blocks, events=events, marks=marks)

    memory = join([tape(2), tape(4)], "cuda")
    work = WorkModel(batches=(2, 4), works=((), ()))
    return Plan(memory=memory, work=work, num_parameters=1, num_samples=num_samples)


def test_an_evaluation_comes_between_the_steps_of_a_trial():
    need = Need.on(steps_plan(), parse_target("4GiB"))
    # weights and state beside the four of an evaluation, which takes the place of the step's three where it can
    assert need.replay(32).allocated_peak_bytes == (10 + 20 + 4 * 32) * MIB


def test_inputs_are_copied_in_a_stream_of_their_own_and_those_of_an_evaluation_are_not():
    for part in Need.on(steps_plan(), parse_target("4GiB"))._parts(32):
        assert part.streams == {1: 1, 4: 1}


def test_the_smaller_last_batch_of_the_data_set_is_a_step_too():
    whole, rest = (Need.on(steps_plan(num_samples=count), parse_target("4GiB")) for count in (64, 64 + 31))
    assert len(whole._parts(32)) == 4
    sizes = [part.sizes[5] // MIB for part in rest._parts(32)]
    assert sizes == [64, 62, 64, 64, 64]


def test_a_step_that_leaves_something_behind_is_replayed_as_it_was_traced():
    assert len(Need.on(steps_plan(stays=True), parse_target("4GiB"))._parts(32)) == 1


def test_gradients_that_the_next_step_would_free_are_gone_before_other_batches_come():
    """Weights; two steps that make a gradient each, the second after it freed the first's; an evaluation."""

    def tape(batch):
        sizes = [10 * MIB, 10 * MIB, batch * MIB, 10 * MIB, batch * MIB]
        phases = [StepPhase.BUILD, StepPhase.BACKWARD, StepPhase.FORWARD, StepPhase.BACKWARD, StepPhase.EVALUATE]
        names = ["weight", "gradient", "product", "gradient", "product"]
        rows = zip(sizes, names, phases, strict=True)
        blocks = [Storage(size, name, "", phase) for size, name, phase in rows]
        events = [0, 1, ~1, 2, 3, ~2, ~3, 4, ~4]
        return Tape(batch, blocks=blocks, events=events, marks={"built": 1, "step 1": 2, "step 2": 6, "evaluated": 9})

    plan = Plan(
        memory=join([tape(2), tape(4)], "cuda"), work=WorkModel(batches=(2, 4), works=((), ())), num_parameters=1
    )
    first, evaluation, again, _ = (part.events for part in Need.on(plan, parse_target("4GiB"))._parts(32))
    assert list(first) == [0, 1, ~1]
    assert list(evaluation) == [4, ~4]
    assert list(again) == [2, 3, ~2, ~3]


def test_gradients_that_are_kept_until_the_forward_pass_is_over_lie_beside_what_it_makes():
    """Weights; two steps that make a gradient each, the second after a product, and only then frees the first's."""

    def tape(batch):
        sizes = [10 * MIB, 10 * MIB, batch * MIB, 10 * MIB]
        phases = [StepPhase.BUILD, StepPhase.BACKWARD, StepPhase.FORWARD, StepPhase.BACKWARD]
        kinds = [StorageKind.WEIGHTS, StorageKind.GRADIENTS, StorageKind.ACTIVATIONS, StorageKind.GRADIENTS]
        names = ["weight", "gradient", "product", "gradient"]
        rows = zip(sizes, names, phases, kinds, strict=True)
        blocks = [Storage(size, name, "", phase, kind) for size, name, phase, kind in rows]
        return Tape(batch, blocks=blocks, events=[0, 1, 2, ~1, ~2, 3], marks={"built": 1, "step 1": 2, "step 2": 6})

    work = WorkModel(batches=(2, 4), works=((), ()))
    plan = Plan(memory=join([tape(2), tape(4)], "cuda"), work=work, num_parameters=1)
    assert Need.on(plan, parse_target("4GiB")).replay(32).allocated_peak_bytes == (10 + 10 + 32) * MIB


def test_workspaces_are_taken_where_the_first_products_are():
    plan = plan_of(100 * MIB, 32 * MIB)
    need = Need.on(plan, parse_target("4GiB"))
    (part,) = need._parts(2)
    assert part.events == [0, 2, 1, 3, ~1]
    assert part.sizes[2:] == [32 * MIB, 32 * MIB]
    without = replace(plan, memory=replace(plan.memory, marks={}))
    assert Need.on(without, parse_target("4GiB")).peak_bytes(2) == need.peak_bytes(2) - 64 * MIB


@pytest.mark.parametrize(("guess", "share"), [(1, 1.0), (80, 1.0), (4000, 1.0), (50, 0.5)])
def test_a_search_near_a_guess_finds_what_a_search_from_one_finds(guess, share):
    need = Need.on(plan_of(100 * MIB, 32 * MIB), parse_target("4GiB"))
    available = int((4 * GIB - 692 * MIB) * share)
    assert need.largest_near(guess, share) == (available - 164 * MIB) // (32 * MIB)
