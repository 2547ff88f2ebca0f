"""Activation checkpointing and the ways out of too little memory, on a machine that answers from formulas."""

import dataclasses

import pytest

from gpudoc.errors import GpudocError
from gpudoc.tune.findings import Findings, SearchPlan
from gpudoc.tune.model.memory import MemoryLine
from gpudoc.tune.search import sizing
from gpudoc.tune.search.journal import Journal
from gpudoc.tune.search.largest import Largest
from gpudoc.tune.search.runner import WorkloadRunner
from gpudoc.tune.search.session import Session
from gpudoc.tune.search.sizing import expected_gain, recompute_for_speed, size_batch
from gpudoc.tune.search.variants import Abilities
from gpudoc.tune.trial.launcher import Where
from gpudoc.tune.trial.messages import RUNG, End, Point, Trial, TrialRequest, Variant
from gpudoc.units import MIB
from tests.tune.formula import Machine


def search(machine, goal="throughput", useful=256, **abilities):
    session = Session(
        runner=WorkloadRunner(launcher=machine, where=Where(device="cpu", limit_bytes=machine.limit)),
        journal=Journal(None),
        progress=machine,
        budget_s=1e6,
    )
    able = {"can_recompute": True, "precision": "auto", **abilities}
    plan = SearchPlan(
        parts=frozenset({"batch", "speed"}),
        goal=goal,
        reference=8,
        cap=10_000,
        useful=useful,
        base=Variant(),
        abilities=Abilities(
            device="cpu", native_bf16=False, has_images=False, budget_s=60.0, can_compile=False, **able
        ),
    )
    return session, plan, Findings()


def test_batch_one_that_does_not_fit_is_tried_with_checkpointing_before_it_is_given_up():
    machine = Machine(300, per_sample=400)
    session, plan, found = search(machine)
    size_batch(session, plan, found)
    assert found.variant.activation_checkpointing
    assert found.variant.precision == "fp32"
    assert (found.largest.batch, found.largest.is_proved) == (2, True)
    assert found.reasons["activation_checkpointing"] == (
        "activation_checkpointing on: batch 1 does not fit in 300 MiB without"
    )


def test_then_lower_precision_and_both_together():
    session, plan, found = search(Machine(300, per_sample=1600))
    size_batch(session, plan, found)
    assert (found.variant.activation_checkpointing, found.variant.precision) == (True, "bf16")
    session, plan, found = search(Machine(300, per_sample=400), can_recompute=False)
    size_batch(session, plan, found)
    assert (found.variant.activation_checkpointing, found.variant.precision) == (False, "bf16")


def test_nothing_fits_names_what_was_tried_the_bytes_and_the_least_limit_that_would_do():
    machine = Machine(300, per_sample=8000)
    session, plan, found = search(machine)
    with pytest.raises(GpudocError) as raised:
        size_batch(session, plan, found)
    message = raised.value.message
    assert f"{7800 * MIB:,} bytes more" in message
    assert "activation checkpointing (needs 2.05 GiB)" in message
    assert "activation checkpointing and bf16 (needs 1.07 GiB)" in message
    assert "--memory-limit 1156MiB" in raised.value.hint
    assert raised.value.exit_code == 1


def test_on_a_gpu_what_the_plan_says_of_further_ways_stands_behind_what_was_run():
    class Planned(Machine):
        def run(self, request, where):
            if request.question is None or request.question.asks != "ladder":
                return super().run(request, where)
            assert request.question.limit_bytes == self.limit
            rungs = {"8-bit optimizer state": 400.0 * MIB, "FSDP2 over 4 such GPUs": 200.0 * MIB}
            told = {f"{RUNG}{change}": peak for change, peak in rungs.items()}
            return Trial(request=request, end=End.FITS, measured={**told, "other_cpus": 0.5})

    session, plan, found = search(Planned(300, per_sample=8000))
    plan = dataclasses.replace(plan, abilities=dataclasses.replace(plan.abilities, device="cuda:0", native_bf16=True))
    with pytest.raises(GpudocError) as raised:
        size_batch(session, plan, found)
    told = raised.value.message.partition("; predicted and not run, ")
    assert "tried as well" in told[0]
    rungs = "8-bit optimizer state 400 MiB, FSDP2 over 4 such GPUs 200 MiB"
    assert told[2] == f"each on top of those before it: {rungs}"


def test_a_config_that_forbids_checkpointing_and_fixes_the_precision_is_obeyed():
    machine = Machine(300, per_sample=8000)
    session, plan, found = search(machine, can_recompute=False, precision="fp32")
    with pytest.raises(GpudocError):
        size_batch(session, plan, found)
    assert {request.variant.activation_checkpointing for request in machine.asked} == {False}
    assert {request.variant.precision for request in machine.asked} == {"fp32"}


def test_the_largest_batch_uses_checkpointing_when_more_fits_with_it():
    machine = Machine(1000)
    session, plan, found = search(machine, goal="largest")
    size_batch(session, plan, found)
    assert found.variant.activation_checkpointing
    assert abs(found.largest.batch - 450) <= 1
    assert found.reasons["activation_checkpointing"] == (
        "activation_checkpointing on: 450 samples are predicted to fit with it, 112 without"
    )
    plain = [request.kind for request in machine.asked if not request.variant.activation_checkpointing]
    assert plain == ["calibrate"]


def test_the_largest_batch_goes_without_where_it_does_not_help():
    class Stubborn(Machine):
        def peak(self, batch, variant):
            return super().peak(batch, Variant())

    session, plan, found = search(Stubborn(1000), goal="largest")
    size_batch(session, plan, found)
    assert not found.variant.activation_checkpointing
    assert found.largest.batch == 112
    assert "not used: 112 samples" in found.reasons["activation_checkpointing"]


def timed(machine, *batches):
    return tuple(machine.point(batch, Variant()) for batch in batches)


def test_checkpointing_wins_speed_where_a_step_costs_much_whatever_its_batch():
    machine = Machine(1000, fixed_s=2.0)
    session, plan, found = search(machine)
    size_batch(session, plan, found)
    found.speeds = timed(machine, 8, 32, 100)
    recompute_for_speed(session, plan, found)
    assert found.variant.activation_checkpointing
    assert "times the speed at batch 256, which does not fit without it" in found.reasons["activation_checkpointing"]
    assert found.largest.batch > 256
    assert {point.batch for point in found.speeds} == {256}


def test_checkpointing_is_not_tried_where_it_cannot_win_and_the_bound_is_said():
    machine = Machine(1000, fixed_s=0.001)
    session, plan, found = search(machine)
    size_batch(session, plan, found)
    found.speeds = timed(machine, 8, 32, 100)
    before = len(machine.asked)
    recompute_for_speed(session, plan, found)
    assert not found.variant.activation_checkpointing
    assert "not tried: it recomputes a third of every step" in found.reasons["activation_checkpointing"]
    assert len(machine.asked) == before


def test_checkpointing_that_turns_out_slower_than_hoped_is_not_used():
    class Slow(Machine):
        def point(self, batch, variant):
            made = super().point(batch, variant)
            slower = 5 if variant.activation_checkpointing else 1
            return made.model_copy(update={"step_s": tuple(slower * s for s in made.step_s)})

    machine = Slow(1000, fixed_s=2.0)
    session, plan, found = search(machine)
    size_batch(session, plan, found)
    found.speeds = timed(machine, 8, 32, 100)
    recompute_for_speed(session, plan, found)
    assert not found.variant.activation_checkpointing
    assert "not used: 0." in found.reasons["activation_checkpointing"]
    assert found.largest.batch == 112


def test_where_memory_does_not_bind_checkpointing_is_no_question():
    machine = Machine(8000, fixed_s=2.0)
    session, plan, found = search(machine)
    size_batch(session, plan, found)
    found.speeds = timed(machine, 8, 256)
    recompute_for_speed(session, plan, found)
    assert found.reasons == {}


def test_the_expected_gain_repeats_a_third_of_a_step():
    machine = Machine(1000, fixed_s=1.0)
    gain = expected_gain(timed(machine, 10, 100), 1000)
    assert gain == pytest.approx((1000 / (4 / 3 * 2.0)) / (100 / 1.1), rel=0.01)
    assert expected_gain((), 10) is None


class Unrecomputable(Machine):
    """A model that raises, or hangs, when its activations are computed again."""

    end = End.USER_ERROR

    def run(self, request, where):
        trial = super().run(request, where)
        if not request.variant.activation_checkpointing or request.kind == "plan":
            return trial
        failed = {"end": self.end, "stage": "train", "detail": "CheckpointError", "traceback": "T"}
        return trial.model_copy(update=failed)


def test_a_model_that_cannot_be_recomputed_goes_without_whatever_asked_for_it():
    for goal in ("largest", "throughput"):
        machine = Unrecomputable(1000, fixed_s=2.0)
        session, plan, found = search(machine, goal=goal)
        size_batch(session, plan, found)
        found.speeds = timed(machine, 8, 32, 100)
        recompute_for_speed(session, plan, found)
        assert (found.variant, found.largest.batch) == (Variant(), 112)
        assert found.rejected["activation_checkpointing"].endswith("rejected, it failed in train: CheckpointError")


def test_the_next_way_out_is_tried_when_one_fails(monkeypatch):
    monkeypatch.setattr(Unrecomputable, "end", End.HANG)
    session, plan, found = search(Unrecomputable(300, per_sample=400))
    size_batch(session, plan, found)
    assert (found.variant.activation_checkpointing, found.variant.precision) == (False, "bf16")


@pytest.mark.parametrize(
    ("changes", "batch"),
    [({}, 32), ({"complete": True}, 1), ({"fails_at": 2}, 1)],
    ids=["the budget ended", "all was shown", "a smaller one failed"],
)
def test_a_batch_that_was_timed_is_not_above_the_largest_when_the_budget_ends_first(monkeypatch, changes, batch):
    session, plan, found = search(Machine(300, per_sample=400))
    row = Trial(request=TrialRequest(kind="default", batches=(32,)), end=End.FITS, points=(Point(batch=32),))
    found.defaults.append(row)
    found.variants.append(row.model_copy(update={"points": (Point(batch=64),), "end": End.HANG}))
    shown = {"batch": 1, "cap": 100, "limit_bytes": 1, "complete": False, **changes}
    monkeypatch.setattr(sizing, "_search", lambda *_: Largest(**shown))
    size_batch(session, plan, found)
    assert found.largest.batch == batch


class Foreseeing(Machine):
    """A machine whose plan knows a policy that fits."""

    # beside it, what every trial measures
    foreseen = {"policy selective": 1.05, "other_cpus": 0.5}  # noqa: RUF012


def questions(machine):
    return [request for request in machine.asked if request.question and request.question.asks in ("policy", "most")]


def test_what_the_plan_says_is_enough_is_tried_before_every_block_is_recomputed():
    machine = Foreseeing(400, per_sample=400)
    session, plan, found = search(machine, has_policies=True)
    size_batch(session, plan, found)
    assert found.variant.activation_checkpointing == "selective"
    assert found.reasons["activation_checkpointing"] == (
        "activation_checkpointing selective: batch 1 does not fit in 400 MiB without"
    )
    (asked,) = questions(machine)
    assert (asked.kind, asked.batches, asked.question.limit_bytes) == ("plan", (1,), 400 * MIB)


def test_a_policy_that_turns_out_not_to_fit_gives_way_to_every_block():
    session, plan, found = search(Foreseeing(250, per_sample=400), has_policies=True)
    size_batch(session, plan, found)
    assert found.variant.activation_checkpointing is True


def test_a_policy_that_costs_little_wins_speed_where_every_block_would_cost_too_much():
    """At batch 200 a third more time takes away what the larger batch gives; a twentieth does not."""
    machine = Foreseeing(1000, fixed_s=0.04)
    session, plan, found = search(machine, useful=200, has_policies=True)
    size_batch(session, plan, found)
    found.speeds = timed(machine, 8, 32, 100)
    recompute_for_speed(session, plan, found)
    assert found.variant.activation_checkpointing == "selective"
    assert "activation_checkpointing selective: 1.11 times the speed" in found.reasons["activation_checkpointing"]
    (asked,) = questions(machine)
    assert asked.batches == (200,)
    assert asked.question.limit_bytes == pytest.approx(0.92 * 1000 * MIB)


def test_without_a_policy_every_block_is_the_only_question():
    machine = Foreseeing(1000, fixed_s=0.04)
    session, plan, found = search(machine, useful=200)
    size_batch(session, plan, found)
    found.speeds = timed(machine, 8, 32, 100)
    recompute_for_speed(session, plan, found)
    assert "not tried: it recomputes a third of every step" in found.reasons["activation_checkpointing"]
    assert questions(machine) == []


def test_a_policy_that_cannot_win_either_is_not_tried_and_its_bound_is_said(monkeypatch):
    monkeypatch.setattr(Foreseeing, "foreseen", {"policy blocks:3": 1.2})
    machine = Foreseeing(1000, fixed_s=0.04)
    session, plan, found = search(machine, useful=200, has_policies=True)
    size_batch(session, plan, found)
    found.speeds = timed(machine, 8, 32, 100)
    recompute_for_speed(session, plan, found)
    assert found.variant.activation_checkpointing is False
    assert (
        "checkpointing of 3 blocks takes 1.20 times the time of a step or more, and batch 200"
        in (found.reasons["activation_checkpointing"])
    )


class OnlyWhole(Foreseeing):
    """A model that fails when a part of its activations is recomputed, and recomputes every block well."""

    def run(self, request, where):
        trial = super().run(request, where)
        if not isinstance(request.variant.activation_checkpointing, str):
            return trial
        failed = {"end": End.USER_ERROR, "stage": "train", "detail": "changed in place", "traceback": "T"}
        return trial.model_copy(update=failed)


def test_the_largest_batch_uses_the_policy_that_the_plan_says_lets_most_fit():
    machine = Foreseeing(1000)
    session, plan, found = search(machine, goal="largest", has_policies=True)
    size_batch(session, plan, found)
    assert found.variant.activation_checkpointing == "selective"
    assert found.reasons["activation_checkpointing"] == (
        "activation_checkpointing selective: 225 samples are predicted to fit with it, 112 without; the cheapest one "
        "with which as many fit, 1.05 times a step's time at least"
    )
    (asked,) = questions(machine)
    assert (asked.batches, asked.question.asks, asked.question.limit_bytes) == ((plan.cap,), "most", 1000 * MIB)
    assert True not in {request.variant.activation_checkpointing for request in machine.asked}


def test_the_largest_batch_recomputes_every_block_where_a_part_cannot_be():
    session, plan, found = search(OnlyWhole(1000), goal="largest", has_policies=True)
    size_batch(session, plan, found)
    assert found.variant.activation_checkpointing is True
    assert abs(found.largest.batch - 450) <= 1
    assert found.rejected == {
        "activation_checkpointing selective": (
            "activation_checkpointing selective: rejected, it failed in train: changed in place"
        )
    }


def test_where_a_part_cannot_be_recomputed_every_block_is():
    machine = OnlyWhole(1000, fixed_s=2.0)
    session, plan, found = search(machine, has_policies=True)
    size_batch(session, plan, found)
    found.speeds = timed(machine, 8, 32, 100)
    recompute_for_speed(session, plan, found)
    assert found.variant.activation_checkpointing is True
    (rejected,) = found.rejected.values()
    assert rejected == "activation_checkpointing selective: rejected, it failed in train: changed in place"
    session, plan, found = search(OnlyWhole(400, per_sample=400), has_policies=True)
    size_batch(session, plan, found)
    assert found.variant.activation_checkpointing is True


@pytest.mark.parametrize(
    ("changes", "largest", "is_asked"),
    [
        ({}, 16, True),
        ({}, 15, False),
        ({"compile": True}, 16, False),
        ({"ranks": 2}, 16, False),
        ({"device": "cuda:0"}, 16, False),
        ({}, None, False),
    ],
)
def test_small_steps_are_compared_on_a_cpu_where_the_largest_batch_is_many_times_theirs(
    monkeypatch, changes, largest, is_asked
):
    machine = Machine(100)
    session, plan, _ = search(machine)
    session.runner.ranks = changes.get("ranks", 1)
    session.runner.where = dataclasses.replace(session.runner.where, device=changes.get("device", "cpu"))
    line = None if largest is None else MemoryLine(batch=largest, peak_bytes=100 * MIB, bytes_per_sample=1.0 * MIB)
    monkeypatch.setattr(sizing, "foresee", lambda session, **more: line)
    monkeypatch.setattr(sizing, "find_largest", lambda *args, **more: Largest(batch=16, cap=16, limit_bytes=1))
    monkeypatch.setattr(sizing, "settle_largest", lambda session, found, **more: found)
    sizing._search(session, plan, Variant(compile=changes.get("compile", False)))
    asked = [(request.batches, request.steps) for request in machine.asked if request.kind == "alike"]
    assert asked == ([((2,), 25)] if is_asked else [])
