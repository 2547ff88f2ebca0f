import os
import signal

import pytest

from gpudoc.errors import GpudocError
from gpudoc.profile.model import Loader
from gpudoc.tune.findings import Findings, SearchPlan
from gpudoc.tune.search import stages
from gpudoc.tune.search.journal import Header, Journal, open_journal
from gpudoc.tune.search.runner import WorkloadRunner
from gpudoc.tune.search.session import Session
from gpudoc.tune.search.stages import run_stages
from gpudoc.tune.search.variants import Abilities
from gpudoc.tune.trial.launcher import Where
from gpudoc.tune.trial.messages import End, Point, Trial, Variant
from tests.tune import formula

SPEED = {"fp32": 1.0, "bf16": 2.0}


class Machine:
    """Answers every request from a formula: seconds of a step by batch and variant."""

    def __init__(self, slow_joint=False, budget_s=1e6):
        self.slow_joint, self.asked = slow_joint, []

    def run(self, request, where):
        self.asked.append(request)
        factor = SPEED[request.variant.precision] / (4 if self.slow_joint and request.kind == "joint" else 1)
        points = tuple(
            Point(batch=b, peak_bytes=100 + b, rest_bytes=10, step_s=((0.2 + 0.01 * b) / factor,))
            for b in request.batches
        )
        return Trial(request=request, end=End.FITS, points=points, seconds=1.0, losses=(3.0, 2.0, 1.0))

    def say(self, text):
        pass

    def advance(self, done, total, text):
        pass


class Failing(Machine):
    """The user's code raises under bf16 in trials of one kind, and under fp32 if `always`."""

    def __init__(self, kind, always=False):
        super().__init__()
        self.kind, self.always = kind, always

    def run(self, request, where):
        trial = super().run(request, where)
        if request.kind != self.kind or (request.variant == Variant() and not self.always):
            return trial
        return trial.model_copy(
            update={"end": End.USER_ERROR, "stage": "speed", "detail": "RuntimeError: no kernel", "traceback": "T"}
        )


def found_by(machine, parts=("speed",), loader=None, budget_s=1e6, journal=None, goal="throughput", base=None):
    session = Session(
        runner=WorkloadRunner(launcher=machine, where=Where(device="cpu", limit_bytes=10_000)),
        journal=journal or Journal(None),
        progress=machine,
        budget_s=budget_s,
    )
    abilities = Abilities(
        device="cpu", native_bf16=True, has_images=False, precision="auto", budget_s=60.0, can_compile=False
    )
    plan = SearchPlan(
        parts=frozenset(parts),
        goal=goal,
        reference=32,
        cap=1000,
        useful=256,
        base=base or Variant(),
        abilities=abilities,
    )
    found = Findings()
    run_stages(session, plan, found, loader)
    return found


def test_the_default_is_tried_first_and_beaten():
    machine = Machine()
    found = found_by(machine)
    first = machine.asked[0]
    assert (first.kind, first.batches, first.variant, first.feed) == ("default", (32,), Variant(), Loader())
    assert found.variant.precision == "bf16"
    assert found.choice.batch in (256, 32, 64, 128)
    assert found.speedup > 2
    assert [r.kind for r in machine.asked].count("joint") == 2


def test_speed_is_not_compared_where_only_the_largest_batch_is_asked_for(monkeypatch):
    """The default runs under the allocator of the search, since another one is another fork server."""
    monkeypatch.setattr(stages, "size_batch", lambda session, plan, found: None)
    machine, tuned = Machine(), Machine()
    found = found_by(machine, parts=("batch",), goal="largest")
    (request,) = machine.asked
    assert (request.kind, request.variant.allocator, request.seconds_per_batch) == ("default", "exact", 0.2)
    assert (found.speedup, found.asked_for_speed) == (None, False)
    found_by(tuned, parts=("batch", "loader"), loader=lambda *_: None, goal="largest")
    assert [request.kind for request in tuned.asked] == ["default", "joint", "default", "joint"]
    assert max(request.seconds_per_batch for request in tuned.asked) == 6
    assert [request.variant.allocator for request in tuned.asked] == ["default", "exact", "default", "exact"]


def test_a_choice_that_loses_to_the_default_gives_way_to_it():
    found = found_by(Machine(slow_joint=True))
    assert found.kept_default
    assert (found.choice.batch, found.variant, found.feed, found.speedup) == (32, Variant(), Loader(), 1.0)
    assert any("default stands" in note for note in found.notes)


class OutOfMemory(Machine):
    """Memory runs out with real data in the choice's turn `at`, and for the default as well if `always`."""

    def __init__(self, at=0, always=False):
        super().__init__()
        self.at, self.always = at, always

    def run(self, request, where):
        trial = super().run(request, where)
        fails = request.kind == "joint" and request.repeat == self.at
        if not fails and not (self.always and request.kind == "default"):
            return trial
        return trial.model_copy(update={"end": End.OOM_HOST, "detail": "9 GiB asked for", "points": ()})


@pytest.mark.parametrize("goal", ["throughput", "largest"])
@pytest.mark.parametrize("at", [0, 1])
def test_a_choice_that_fails_in_the_last_comparison_gives_way_to_the_default(goal, at):
    def loader(session, plan, found):
        found.feed, found.num_loaders = Loader(num_workers=3), 1

    machine = OutOfMemory(at)
    found = found_by(machine, parts=("speed", "loader"), loader=loader, goal=goal)
    assert (found.kept_default, found.verdict.kind) == (True, "none_faster")
    assert (found.choice.batch, found.variant, found.feed) == (32, Variant(), Loader())
    assert any("failed with your data (memory ran out: 9 GiB asked for), so the default" in n for n in found.notes)
    assert not any(row.kept for row in found.tried)
    assert machine.asked[-1].kind == "joint"


def test_a_choice_that_fails_where_the_default_fails_too_says_so_and_nothing_else_stands():
    found = found_by(OutOfMemory(always=True))
    assert not found.kept_default
    assert found.verdict.why == "with your data these settings failed: memory ran out: 9 GiB asked for"


def test_a_choice_that_is_faster_only_within_the_noise_gives_way_to_the_default_too():
    class Scattered(Machine):
        """With real data the steps of both differ by more than the choice gains."""

        def run(self, request, where):
            trial = super().run(request, where)
            if request.kind not in ("joint", "default"):
                return trial
            step_s = (0.1, 0.2, 0.4) if request.kind == "default" else (0.09, 0.18, 0.36)
            return trial.model_copy(update={"points": (Point(batch=32, step_s=step_s),)})

    found = found_by(Scattered())
    assert (found.kept_default, found.variant) == (True, Variant())
    assert any("1.11 times the default's speed (0.28 to 4.44: such timings vary" in note for note in found.notes)


def test_a_precision_that_the_config_asks_for_is_the_defaults_too_and_stays_where_the_default_does():
    base = Variant(precision="bf16")
    machine = Machine(slow_joint=True)
    found = found_by(machine, base=base)
    assert {request.variant for request in machine.asked if request.kind == "default"} == {base}
    assert (found.kept_default, found.variant) == (True, base)


def test_the_loader_is_tuned_at_the_chosen_batch_and_used_in_the_comparison():
    machine = Machine()

    def loader(session, plan, found):
        found.feed = Loader(num_workers=3)

    found_by(machine, parts=("speed", "loader"), loader=loader)
    assert {r.feed.num_workers for r in machine.asked if r.kind == "joint"} == {3}


class Busy(Machine):
    """Others keep a CPU busy all the time, and a second look at bf16 finds it as slow as fp32 unless `stays`."""

    def __init__(self, stays):
        super().__init__()
        self.stays = stays

    def run(self, request, where):
        trial = super().run(request, where)
        if request.kind == "variant" and request.repeat and not self.stays:
            step_s = (0.2 + 0.01 * request.batches[0],)
            trial = trial.model_copy(update={"points": (trial.points[0].model_copy(update={"step_s": step_s}),)})
        return trial.model_copy(update={"measured": {"other_cpus": 1.0, "busy_share": 1.0}})


@pytest.mark.parametrize("stays", [True, False])
def test_a_gain_on_a_busy_machine_must_show_twice(stays):
    machine = Busy(stays)
    found = found_by(machine)
    seen = [
        (r.variant.precision, r.repeat) for r in machine.asked if r.kind == "variant" and r.variant.allocator != "exact"
    ]
    assert seen.count(("bf16", 1)) == seen.count(("fp32", 1)) == 1
    assert found.variant.precision == ("bf16" if stays else "fp32")
    (row,) = [row for row in found.tried if row.name == "bf16"]
    assert (row.kept, "not used" in row.why) == (stays, not stays)


def test_for_a_size_alone_nothing_is_compared_whatever_the_goal(monkeypatch):
    monkeypatch.setattr(stages, "size_batch", lambda session, plan, found: None)
    machine = Machine()
    found = found_by(machine, parts=("batch",))
    assert [(request.kind, request.variant) for request in machine.asked] == [("default", Variant())]
    assert (found.asked_for_speed, found.choice.batch) == (False, 32)


@pytest.mark.parametrize("kind", ["variant", "speed", "joint"])
def test_a_variant_that_fails_is_rejected_in_a_line_and_the_search_goes_on(kind):
    journal = Journal(None)
    found = found_by(Failing(kind), journal=journal)
    assert found.variant == Variant()
    assert found.choice.batch in (32, 64, 128, 256)
    (row,) = [row for row in found.tried if row.name == "bf16"]
    assert row.why.endswith("rejected, it failed in speed: RuntimeError: no kernel")
    assert not row.kept
    # a search that continues from the journal decides the same without a trial
    again = Failing(kind)
    assert found_by(again, journal=journal) == found
    assert again.asked == []


def test_an_allocator_that_fails_before_any_lever_is_given_up_as_well():
    class Refuses(Machine):
        def run(self, request, where):
            trial = super().run(request, where)
            if request.variant.allocator != "exact":
                return trial
            return trial.model_copy(update={"end": End.USER_ERROR, "stage": "train", "detail": "planted"})

    found = found_by(Refuses(), goal="largest")
    assert found.variant == Variant()
    assert "planted" in found.rejected["allocator"]


def test_once_the_default_has_used_the_budget_up_nothing_is_begun_and_each_part_says_so():
    machine, tuned = Machine(), []
    found = found_by(machine, parts=("batch", "speed", "loader"), loader=lambda *_: tuned.append(1), budget_s=0.5)
    assert [request.kind for request in machine.asked] == ["default"]
    assert (found.largest, tuned) == (None, [])
    assert "the largest batch was not searched: no time was left to run one batch" in found.notes
    assert "no lever was tried; the budget is reserved for the batch" in found.notes
    assert "the loader was not tuned: the budget is used up" in found.notes


def test_the_loader_is_not_begun_where_its_process_alone_would_take_what_is_left():
    for start_s, times in ((0.0, 1), (1e6, 0)):
        journal, tuned = Journal(None, start_s=start_s), []
        found_by(Machine(), parts=("loader",), loader=lambda *_, tuned=tuned: tuned.append(1), journal=journal)
        assert len(tuned) == times


def test_what_fails_without_any_variant_is_the_users_error():
    with pytest.raises(GpudocError, match="no kernel"):
        found_by(Failing("speed", always=True))


def test_without_time_the_reference_batch_stays():
    found = found_by(Machine(), budget_s=0.5)
    assert found.choice.batch == 32


class Mortal(formula.Machine):
    """Kills its own process with SIGKILL when it is asked for one trial more than it may run."""

    lives = None

    def run(self, request, where):
        if len(self.asked) == self.lives:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(request, where)


def searched(path, machine):
    """A whole search with its journal at `path`: what it found, in words."""
    session = Session(
        runner=WorkloadRunner(launcher=machine, where=Where(device="cpu", limit_bytes=machine.limit)),
        journal=open_journal(path, Header(key={"of": "this test"}, limit_bytes=machine.limit)),
        progress=machine,
        budget_s=60.0,
    )
    abilities = Abilities(
        device="cpu",
        native_bf16=True,
        has_images=True,
        precision="auto",
        budget_s=60.0,
        can_compile=False,
        can_recompute=True,
        can_fuse=True,
    )
    plan = SearchPlan(
        parts=frozenset({"batch", "speed"}),
        goal="throughput",
        reference=8,
        cap=10_000,
        useful=256,
        base=Variant(),
        abilities=abilities,
    )
    found = Findings()
    run_stages(session, plan, found)
    return repr(found)


def test_killed_with_sigkill_after_any_record_no_trial_is_repeated_and_the_end_is_the_same(tmp_path):
    whole = tmp_path / "whole.jsonl"
    machine = Mortal(1000, fixed_s=2.0)
    expected = searched(whole, machine)
    records = whole.read_text().splitlines(keepends=True)
    count = len(records) - 1
    assert count == len(machine.asked) > 12
    for kept in range(1, count):
        path = tmp_path / f"{kept}.jsonl"
        pid = os.fork()
        if pid == 0:
            try:
                mortal = Mortal(1000, fixed_s=2.0)
                mortal.lives = kept
                searched(path, mortal)
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL
        assert path.read_text() == "".join(records[: kept + 1])
        again = Mortal(1000, fixed_s=2.0)
        assert searched(path, again) == expected
        assert len(again.asked) == count - kept
        assert path.read_text() == whole.read_text()


def test_a_budget_that_is_nearly_used_up_shortens_the_comparison_or_leaves_it_out_and_says_so():
    class Late(Machine):
        def run(self, request, where):
            made = super().run(request, where)
            return made.model_copy(update={"seconds": 12.0}) if request.variant.allocator == "exact" else made

    def joint_seconds(budget_s, machine):
        found = found_by(machine, budget_s=budget_s)
        return [r.seconds_per_batch for r in machine.asked if r.kind == "joint"], found

    plenty, _ = joint_seconds(600.0, Machine())
    little, _ = joint_seconds(16.0, Machine())
    none, found = joint_seconds(16.0, Late())
    assert len(plenty) == 2
    assert little
    assert max(little) < plenty[0]
    assert none == []
    assert any("not compared with the default" in note for note in found.notes)
