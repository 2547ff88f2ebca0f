"""Threads that sleep: tried where others compute beside the look, kept where the pretended script is faster with it."""

import pytest

from gpudoc.doctor import spinning
from gpudoc.process.openmp import OpenMp
from gpudoc.profile.model import Profile
from gpudoc.render.script import as_text
from gpudoc.script.record import why
from gpudoc.tune.model.noise import Noise
from gpudoc.tune.trial.messages import Variant
from tests.script.pretended import Pretended, result_of, session_of
from tests.script.test_stages import options, search

NAME = "threads that sleep while they wait"
ASLEEP = Variant(wait_policy="passive")


@pytest.fixture
def crowded(monkeypatch):
    """A script with two threads on two CPUs, of which others keep one busy."""

    def plant(asleep, others=1.0, **settings):
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        monkeypatch.setattr("gpudoc.facts.host.cpus_usable", lambda: 2.0)
        monkeypatch.setattr(spinning, "own_openmp", lambda: OpenMp("libgomp", settings))
        return Pretended(asleep=asleep, beside={"other_cpus": others, "busy_share": 0.95}, fixed_s=0.2)

    return plant


def test_they_are_kept_where_steps_are_faster_and_everything_after_is_launched_so(crowded):
    runner = crowded(1.8)
    found = search(runner, options())
    (row,) = found.tried
    assert (row.name, row.kept, row.changes) == (NAME, True, {"wait_policy": "passive"})
    assert row.times == pytest.approx((0.208 + 0.08) / (0.208 / 1.8 + 0.08), rel=1e-3)
    assert found.variant == ASLEEP
    tried = runner.asked("variant")
    # others disturb both, so both are measured once more
    assert [(request.variant, request.repeat) for request in tried[-2:]] == [(Variant(), 1), (ASLEEP, 1)]
    for kind in ("loader", "fit", "speed", "joint"):
        assert {request.variant for request in runner.asked(kind)} == {ASLEEP}
    assert {request.variant for request in runner.asked("default")} == {Variant()}


def test_the_loader_is_searched_for_the_steps_as_they_now_go(crowded):
    """Beside slow steps two workers are enough; beside quick ones they are not."""
    spins, sleeps = (search(crowded(asleep), options()).feed.num_workers for asleep in (1.0, 10.0))
    assert spins < sleeps


def test_they_are_cured_before_the_loader_is_searched_alone(crowded):
    """The look's own steps tell how long they were with threads that spin, so that one launch fewer is needed."""
    runner = crowded(10.0)
    found = search(runner, options(only="loader"))
    assert found.variant == ASLEEP
    assert found.feed.num_workers == search(crowded(10.0), options()).feed.num_workers
    assert found.feed.num_workers > search(crowded(1.0), options(only="loader")).feed.num_workers
    # ten times as fast is no doubt that a second launch would settle
    assert [(request.variant, request.repeat) for request in runner.asked("variant")] == [(ASLEEP, 0)]
    # what a batch costs is told by the launch that showed it
    assert all(request.feed.num_workers for request in runner.asked("loader")[:2])


def test_steps_that_are_quick_or_slow_as_it_happens_hide_no_cure(crowded):
    """Of the blocks of steps in which threads spin three are as quick as all are with threads that sleep."""
    runner = crowded(5.0)
    run = runner.run

    def by_chance(request, *, patience_s):
        trial = run(request, patience_s=patience_s)
        if request.variant == ASLEEP or request.kind not in ("look", "variant"):
            return trial
        quick = [0.04 if number < 9 else 0.3 for number in range(24)]
        waits = trial.legs["wait_s"]
        steps_s = tuple(step_s + wait_s for step_s, wait_s in zip(quick, waits, strict=False))
        return trial.model_copy(update={"legs": {**trial.legs, "step_s": steps_s, "wait_s": waits[:24]}})

    runner.run = by_chance
    assert search(runner, options(only="loader")).variant == ASLEEP


def test_waiting_for_data_hides_no_cure(crowded):
    """A step of 208 ms waits 8 s for its batch: what sleeping gains of both is nothing beside what launches differ."""
    runner = crowded(5.0)
    runner.sample_s = 1.0
    found = search(runner, options(only="loader"))
    (row,) = found.tried
    assert (row.kept, row.times) == (True, pytest.approx(1.02, rel=0.01))
    assert row.why == f"{NAME}: 1.02 times the speed, 5.00 times without the waiting for data: kept"


@pytest.mark.parametrize(("asleep", "is_kept"), [(5.0, True), (1.5, False)])
def test_with_time_for_one_launch_of_it_only_a_clear_gain_counts(crowded, asleep, is_kept):
    runner = crowded(asleep)
    found = search(runner, options(only="loader"), budget_s=28.0)
    assert [(request.variant, request.repeat) for request in runner.asked("variant")] == [(ASLEEP, 0)]
    assert found.tried[0].kept == is_kept


def test_without_time_for_it_the_loader_is_said_to_be_in_doubt(crowded):
    found = search(crowded(5.0), options(), budget_s=12.0)
    assert any("Spinning threads made the steps look longer" in note for note in found.notes)


def test_they_are_no_more_than_tried_where_steps_are_not_faster(crowded):
    found = search(crowded(1.0), options())
    (row,) = found.tried
    assert (row.kept, found.variant) == (False, Variant())
    assert row.why == f"{NAME}: 1.00 times the speed, 1.00 times without the waiting for data: not used"


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({"others": 0.1}, {}),
        ({"OMP_WAIT_POLICY": "active"}, {}),
        ({}, {"goal": "largest"}),
        ({}, {"only": "batch"}),
        ({}, {"budget": "12s"}),
    ],
    ids=["alone", "told how", "for size", "the batch alone", "no time"],
)
def test_they_are_left_alone(crowded, changes, asked):
    runner = crowded(5.0, **changes)
    found = search(runner, options(**asked), budget_s=options(**asked).budget_s)
    assert runner.asked("variant") == []
    assert found.variant == Variant()


def test_what_loses_in_the_end_is_not_kept(crowded):
    runner = crowded(5.0)
    run = runner.run

    def fickle(request, *, patience_s):
        trial = run(request, patience_s=patience_s)
        lost = {"measured": {**trial.measured, "samples_per_s": 1.0}}
        return trial.model_copy(update=lost) if request.kind == "joint" else trial

    runner.run = fickle
    found = search(runner, options())
    assert found.variant == Variant()
    assert not found.tried[0].kept
    assert "rejected: the settings found reached" in found.tried[0].why


def test_the_profile_and_the_screen_say_what_to_set(crowded):
    runner, asked = crowded(5.0), options()
    session = session_of(runner)
    found = search(runner, asked)
    session.journal.trials.clear()
    result = result_of(asked, found, session)
    profile = Profile.model_validate(result.profile.document())
    assert profile.settings.wait_policy == "passive"
    assert profile.evidence.variants == tuple(found.tried)
    assert f"{NAME}: " in "\n".join(profile.why)
    # a row of its own says it better than what would be said of any busy machine
    assert not [sentence for sentence in why(found, Noise(1, 1, 1.0), "cpu") if "OpenMP threads spin" in sentence]
    shown = as_text(result)
    assert "  export OMP_WAIT_POLICY=passive KMP_BLOCKTIME=0" in shown.splitlines()
    assert "  threads        sleep  while they wait for each other" in shown.splitlines()
