"""Which levers are kept: speeds, failures and losses are planted, and decide as they should."""

import math

import pytest

from gpudoc.doctor import spinning
from gpudoc.errors import GpudocError
from gpudoc.process.openmp import OpenMp
from gpudoc.tune.findings import Findings, SearchPlan
from gpudoc.tune.search.journal import Journal
from gpudoc.tune.search.levers import give_up, try_variants
from gpudoc.tune.search.runner import WorkloadRunner
from gpudoc.tune.search.session import Session
from gpudoc.tune.search.variants import Abilities
from gpudoc.tune.trial.launcher import Where
from gpudoc.tune.trial.messages import End, Point, Trial, Variant

LOSSES = (2.0, 1.8, 1.6, 1.4, 1.2)


def off(share):
    """The losses of a variant that differ by so much of their mean in one step."""
    return (*LOSSES[:-1], LOSSES[-1] + share * 1.6)


class Planted:
    """Runs every variant at the product of the planted speeds of what it changes, with the planted losses and ends."""

    def __init__(self, speeds=None, losses=None, ends=None, draws=None):
        self.speeds, self.losses, self.ends, self.draws = speeds or {}, losses or {}, ends or {}, draws
        self.asked, self.said, self.seconds, self.beside = [], [], {}, {}

    def of(self, plan, variant, default):
        changed = [(n, v) for n, v in variant.model_dump().items() if v != getattr(Variant(), n)]
        return next((plan[change] for change in reversed(changed) if change in plan), default)

    def run(self, request, where):
        self.asked.append(request)
        variant, factor = request.variant, 1.0
        for change in variant.model_dump().items():
            factor *= self.speeds.get(change, 1.0)
        end = self.of(self.ends, variant, End.FITS)
        losses = self.of(self.losses, variant, LOSSES)
        if request.seed:
            losses = self.draws
        fits = end is End.FITS
        return Trial(
            request=request,
            end=end,
            stage="" if fits else "first steps",
            detail="" if fits else "planted: no kernel",
            points=(Point(batch=8, peak_bytes=100, step_s=(0.1 / factor,) * 3),) if fits else (),
            losses=losses if fits else (),
            measured={**({} if self.draws is None else {"draws": 1.0}), **self.beside},
            seconds=self.seconds.get(variant.compile_mode if variant.compile else "", 1.0),
        )

    def say(self, text):
        self.said.append(text)

    def advance(self, done, total, text):
        pass


def tried(machine, budget_s=1e6, **able):
    """What came of the levers that a CPU with bf16 has, and more if `able`."""
    session = Session(
        runner=WorkloadRunner(launcher=machine, where=Where(device="cpu", limit_bytes=10_000)),
        journal=Journal(None),
        progress=machine,
        budget_s=budget_s,
    )
    plain = {"device": "cpu", "native_bf16": True, "has_images": False, "precision": "auto", "budget_s": budget_s}
    plan = SearchPlan(
        parts=frozenset({"speed"}),
        goal="throughput",
        reference=8,
        cap=100,
        useful=64,
        base=Variant(),
        abilities=Abilities(**{**plain, "can_compile": False, **able}),
    )
    found = Findings(variant=plan.base)
    try_variants(session, plan, found, 1.0)
    return found


def rows(found):
    return {row.name: row for row in found.tried}


BF16, EXACT = ("precision", "bf16"), ("allocator", "exact")
COMPILED = {"can_compile": True, "has_blocks": True, "sizes_differ": True}


def test_a_faster_lever_whose_losses_agree_is_kept_and_the_next_one_is_tried_on_top():
    machine = Planted({BF16: 2.0, EXACT: 1.5}, {BF16: off(0.01)})
    found = tried(machine)
    assert found.variant == Variant(precision="bf16", allocator="exact")
    bf16, exact = rows(found)["bf16"], rows(found)["the exact allocator"]
    assert (bf16.kept, bf16.times, bf16.losses.difference) == (True, pytest.approx(2.0), pytest.approx(0.01))
    assert (bf16.losses.steps, bf16.losses.bound) == (5, 0.02)
    assert bf16.why == ("bf16: 2.00 times the speed, losses of the first 5 steps differ by 1 % (2 % allowed): kept")
    # on top of bf16 the losses may lie as far from the reference's as those of bf16
    assert (exact.kept, exact.times, exact.losses.bound) == (True, pytest.approx(1.5), 0.02)
    assert machine.said[-1] == f"  {exact.why}"


@pytest.mark.parametrize("wrong", [off(0.021), (*LOSSES[:2], math.nan), LOSSES[:2]])
def test_a_lever_that_trains_otherwise_is_not_used_however_fast(wrong):
    found = tried(Planted({BF16: 9.0}, {BF16: wrong}))
    assert found.variant == Variant()
    why = rows(found)["bf16"].why
    assert why.startswith("bf16: 9.00 times the speed, but loss")
    assert why.endswith("not used")


def test_a_lever_that_changes_no_format_is_held_to_fp32():
    found = tried(Planted({EXACT: 2.0}, {EXACT: off(0.01)}))
    assert found.variant == Variant()
    assert rows(found)["the exact allocator"].losses.bound == 0.001


def test_what_is_no_faster_or_only_within_the_noise_is_not_used():
    found = tried(Planted({BF16: 0.5, EXACT: 1.02}))
    assert found.variant == Variant()
    assert rows(found)["bf16"].why.startswith("bf16: 0.50 times the speed, losses of the first 5 steps")
    assert "1.02 times the speed (such timings vary by that much)" in rows(found)["the exact allocator"].why


@pytest.mark.parametrize("end", [End.USER_ERROR, End.HANG, End.SIGNAL, End.OOM_DEVICE])
def test_a_lever_that_fails_is_rejected_in_one_line_and_the_search_goes_on(end):
    found = tried(Planted({EXACT: 2.0}, ends={BF16: end}))
    assert found.variant == Variant(allocator="exact")
    row = rows(found)["bf16"]
    assert (row.kept, row.times, row.losses) == (False, None, None)
    assert row.why.startswith("bf16: rejected, it failed in first steps: ")
    assert "\n" not in row.why


def test_when_compiling_fails_once_it_is_not_tried_in_other_ways():
    machine = Planted(ends={("compile", True): End.USER_ERROR})
    found = tried(machine, **COMPILED)
    assert [row.name for row in found.tried if row.name.startswith("torch.compile")] == ["torch.compile"]


def test_the_fastest_way_to_compile_wins():
    machine = Planted({("compile", True): 1.2, ("compile_mode", "blocks"): 1.5, ("compile_mode", "dynamic"): 0.5})
    found = tried(machine, **COMPILED)
    assert found.variant == Variant(compile=True, compile_mode="blocks")
    assert [row.kept for row in found.tried][-3:] == [True, True, False]


def test_a_compilation_that_took_long_is_not_begun_again_on_the_time_of_the_batch():
    machine = Planted()
    machine.seconds = {"whole": 350.0}
    found = tried(machine, budget_s=1000.0, **COMPILED)
    assert [row.name for row in found.tried][-1] == "torch.compile"
    assert "torch.compile by block was not tried; the budget is reserved for the batch" in found.notes


def test_a_model_that_draws_random_numbers_is_measured_twice_and_may_differ_by_chance():
    machine = Planted({BF16: 2.0}, {BF16: off(0.05)}, draws=off(0.02))
    found = tried(machine)
    assert [request.seed for request in machine.asked if request.seed] == [1]
    assert rows(found)["bf16"].losses.bound == pytest.approx(0.02 + 3 * 0.02)
    assert found.variant.precision == "bf16"
    # what was measured for its losses alone counts for no speed
    assert all(not trial.request.seed for trial in found.variants)
    calm = Planted({BF16: 2.0}, {BF16: off(0.05)})
    assert tried(calm).variant.precision == "fp32"
    assert [request for request in calm.asked if request.seed] == []


@pytest.mark.parametrize("losses", [(math.nan,), (2.0, 90.0, math.inf)])
def test_where_the_reference_is_not_finite_nothing_is_compared(losses):
    class Nan(Planted):
        def run(self, request, where):
            return super().run(request, where).model_copy(update={"losses": losses})

    machine = Nan({BF16: 2.0})
    with pytest.raises(GpudocError, match=f"its loss is {losses[-1]} in step {len(losses)}") as caught:
        tried(machine)
    assert caught.value.exit_code == 1
    assert len(machine.asked) == 1


def test_where_no_step_of_the_reference_was_made_nothing_is_kept():
    class Skips(Planted):
        def run(self, request, where):
            return super().run(request, where).model_copy(update={"losses": ()})

    found = tried(Skips({BF16: 2.0}))
    assert found.variant == Variant()
    assert "could not be compared" in rows(found)["bf16"].why


def test_a_lever_that_runs_where_the_plain_step_does_not_is_kept_and_said_to_be_unchecked():
    class Full(Planted):
        def run(self, request, where):
            trial = super().run(request, where)
            if request.variant.precision == "bf16":
                return trial
            return trial.model_copy(update={"end": End.OOM_DEVICE, "points": (), "losses": ()})

    found = tried(Full())
    assert found.variant.precision == "bf16"
    row = rows(found)["bf16"]
    assert (row.kept, row.losses) == (True, None)
    assert "there is nothing to compare its losses with" in row.why


ASLEEP = ("wait_policy", "passive")


@pytest.fixture
def crowded(monkeypatch):
    """Two threads of GCC's runtime on two CPUs, of which others keep one busy."""

    def plant(*speeds, others=1.0, kind=Planted, **settings):
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        monkeypatch.setattr("gpudoc.facts.host.cpus_usable", lambda: 2.0)
        monkeypatch.setattr(spinning, "own_openmp", lambda: OpenMp("libgomp", settings))
        machine = kind(dict(speeds))
        machine.beside = {"other_cpus": others, "busy_share": 0.95}
        return machine

    return plant


def test_threads_that_spin_beside_others_are_let_sleep_first_and_kept_asleep_when_that_is_faster(crowded):
    machine = crowded((ASLEEP, 5.0), (BF16, 1.5))
    found = tried(machine)
    assert found.tried[0].name == "threads that sleep while they wait"
    assert (found.tried[0].kept, found.tried[0].times) == (True, pytest.approx(5.0))
    assert found.tried[0].losses.bound == 0.001
    # the levers after it are tried on top
    assert found.variant == Variant(wait_policy="passive", precision="bf16")
    assert rows(found)["bf16"].times == pytest.approx(1.5)
    # others disturbed both sides, so both were measured once more
    again = [request.variant.wait_policy for request in machine.asked if request.repeat]
    assert again[:2] == ["default", "passive"]


def test_threads_that_sleep_are_tried_while_any_time_is_left_since_nothing_promises_more(crowded):
    machine = crowded((ASLEEP, 5.0), (BF16, 1.5))
    found = tried(machine, budget_s=3.5)
    assert [row.name for row in found.tried] == ["threads that sleep while they wait"]
    assert any(note.startswith("bf16 was not tried") for note in found.notes)


def test_threads_that_sleep_and_are_no_faster_are_left_as_they_were(crowded):
    for times in (1.02, 0.9):
        found = tried(crowded((ASLEEP, times), (BF16, 1.5)))
        assert (rows(found)["threads that sleep while they wait"].kept, found.variant.wait_policy) == (False, "default")
        assert found.variant.precision == "bf16"
        # they are not tried once more together with themselves
        assert not [name for name in rows(found) if name.startswith("threads") and " and " in name]


class Waits(Planted):
    """Products in bf16 wait for threads: beside others at half the speed where these spin, else at 1.4 times it."""

    asleep = 1.4

    def run(self, request, where):
        trial = super().run(request, where)
        if request.variant.precision == "bf16":
            factor = self.asleep if request.variant.wait_policy == "passive" else 0.54
            trial = trial.model_copy(update={"points": (Point(batch=8, step_s=(0.1 / factor,) * 3),)})
        return trial


PAIR = "bf16 and threads that sleep while they wait"


def test_a_lever_that_loses_because_threads_spin_is_tried_once_more_with_threads_that_sleep(crowded):
    machine = crowded(kind=Waits)
    found = tried(machine)
    assert found.variant == Variant(precision="bf16", wait_policy="passive")
    lost, won = rows(found)["bf16"], rows(found)[PAIR]
    assert (lost.kept, lost.times) == (False, pytest.approx(0.54))
    assert (won.kept, won.times) == (True, pytest.approx(1.4))
    assert (won.changes, won.losses.bound) == ({"precision": "bf16", "wait_policy": "passive"}, 0.02)
    assert [row.name for row in found.tried][:3] == ["threads that sleep while they wait", "bf16", PAIR]
    # others disturbed all of it, so both were measured once more
    assert [(r.variant.precision, r.repeat) for r in machine.asked if r.repeat][:2] == [("fp32", 1), ("bf16", 1)]


def test_the_pair_stays_out_where_it_does_not_beat_what_was_chosen(crowded):
    machine = crowded(kind=Waits)
    machine.asleep = 1.02
    found = tried(machine)
    assert (found.variant, rows(found)[PAIR].kept) == (Variant(), False)


def test_the_pair_is_for_any_lever_and_only_where_threads_spun_in_that_trial(crowded):
    slow = crowded((EXACT, 0.5))
    assert "the exact allocator and threads that sleep while they wait" in rows(tried(slow))
    quiet = crowded((EXACT, 0.5), others=0.0)
    assert not [name for name in rows(tried(quiet)) if " and threads" in name]
    assert all(request.variant.wait_policy == "default" for request in quiet.asked)
    differs = crowded((EXACT, 0.5))
    differs.losses = {EXACT: off(0.5)}
    assert not [name for name in rows(tried(differs)) if name.startswith("the exact allocator and")]


def test_the_plainer_one_is_measured_anew_for_every_lever_that_seems_faster():
    class Drifts(Planted):
        """The first two measurements of the plain step are slow: what slowed them shows nowhere and then ends."""

        def run(self, request, where):
            self.speeds = {} if len(self.asked) > 1 else {("wait_policy", "default"): 0.5}
            return super().run(request, where)

    machine = Drifts()
    found = tried(machine, can_fuse=True)
    assert (found.variant, [row.kept for row in found.tried]) == (Variant(), [False, False, False])
    assert rows(found)["bf16"].times == pytest.approx(1.0)


@pytest.mark.parametrize("seen", [{"others": 0.1}, {"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "9"}])
def test_with_nobody_beside_or_told_how_to_wait_threads_are_left_alone(crowded, seen):
    machine = crowded((ASLEEP, 5.0), **seen)
    assert "threads that sleep while they wait" not in rows(tried(machine))
    assert {request.variant.wait_policy for request in machine.asked} == {"default"}


def test_what_is_given_up_later_is_not_said_to_be_kept():
    found = tried(Planted({BF16: 2.0}))
    give_up(found, "it failed in the closing comparison")
    assert not any(row.kept for row in found.tried)
    assert rows(found)["bf16"].why.endswith("kept, but rejected: it failed in the closing comparison")
