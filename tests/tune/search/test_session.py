import pytest

from gpudoc.errors import GpudocError
from gpudoc.tune.search.journal import Journal
from gpudoc.tune.search.runner import WorkloadRunner
from gpudoc.tune.search.session import Session, describe_trial
from gpudoc.tune.search.sizing import can_start, compare_steps
from gpudoc.tune.trial.deadline import Deadline
from gpudoc.tune.trial.launcher import Where
from gpudoc.tune.trial.messages import End, Point, Trial, TrialRequest, Variant
from tests.tune.trial.test_deadline import Clock


class Recorder:
    """A launcher that answers from a list, and a progress that remembers."""

    def __init__(self, *trials):
        self.trials, self.asked, self.said = list(trials), [], []

    def run(self, request, where):
        self.asked.append((request, where))
        return self.trials.pop(0).model_copy(update={"request": request})

    def say(self, text):
        self.said.append(text)

    def advance(self, done, total, text):
        pass


def trial(end=End.FITS, batch=8, seconds=2.0, **changes):
    points = (Point(batch=batch, peak_bytes=1 << 20, step_s=(0.5,)),)
    return Trial(
        request=TrialRequest(kind="speed", batches=(batch,)), end=end, points=points, seconds=seconds, **changes
    )


def session(recorder, **changes):
    where = Where(device="cpu", limit_bytes=1 << 30)
    return Session(
        runner=WorkloadRunner(launcher=recorder, where=where),
        journal=Journal(None),
        progress=recorder,
        budget_s=60.0,
        **changes,
    )


def test_an_equal_request_is_not_run_twice_and_its_cost_counts_once():
    recorder = Recorder(trial())
    search = session(recorder)
    request = TrialRequest(kind="speed", batches=(8,))
    assert search.run(request) == search.run(request)
    assert len(recorder.asked) == 1
    assert search.spent_s == 2.0
    assert search.runner.samples_per_s == 16.0


def beside(others, seconds=2.0):
    return trial(seconds=seconds, measured={"other_cpus": others, "busy_share": 1.0})


def test_a_disturbed_timing_is_repeated_and_the_least_disturbed_kept():
    recorder = Recorder(beside(1.5), beside(0.5), beside(0.0), beside(1.5), beside(0.5), beside(0.0))
    search = session(recorder)
    found = search.run(TrialRequest(kind="speed", batches=(8,)))
    assert (found.measured["other_cpus"], found.seconds) == (0.0, 6.0)
    # three were run for it: one takes a third of that
    search.run(TrialRequest(kind="default", batches=(8,)))
    assert search.runner.overhead_s == 1.5
    assert [one.measured["other_cpus"] for one in search.journal.trials] == [0.0, 0.0]
    assert any("up to 1.5 CPUs busy: measured again" in line for line in recorder.said)


def test_a_machine_that_stays_busy_is_believed_and_later_timings_run_once():
    recorder = Recorder(*(beside(1.0 + n) for n in range(4)))
    search = session(recorder)
    assert search.run(TrialRequest(kind="speed", batches=(8,))).measured["other_cpus"] == 1.0
    assert search.run(TrialRequest(kind="speed", batches=(9,))).measured["other_cpus"] == 4.0
    assert recorder.trials == []


def test_where_speed_decides_nothing_a_disturbed_timing_is_not_repeated():
    recorder = Recorder(beside(0.9))
    assert session(recorder, repeats=False).run(TrialRequest(kind="default", batches=(8,))).is_disturbed
    assert len(recorder.asked) == 1


def resting(measured, end=End.FITS):
    """A session after its comparison of small steps, and what it asks of steady ones."""
    recorder = Recorder(trial(end, measured=measured), trial(), trial())
    search = session(recorder)
    compare_steps(search, 25, 7.0)
    search.steady(1000, steps=20)
    search.variant = Variant(precision="bf16")
    search.steady(1000, steps=20)
    return recorder.asked


def test_few_steady_steps_may_be_enough_where_small_ones_were_alike_under_the_same_variant():
    (alike, where), (steady, _), (other, _) = resting({"alike": 1.0})
    assert (alike.kind, alike.batches, alike.steps, where.stop_s) == ("alike", (2,), 25, 7.0)
    assert (steady.steps, steady.enough) == (20, 5)
    assert (other.steps, other.enough) == (20, 0)


@pytest.mark.parametrize(("measured", "end"), [({"alike": 0.0}, End.FITS), ({}, End.FITS), ({"alike": 1.0}, End.HANG)])
def test_where_small_steps_tell_nothing_all_steady_steps_are_run(measured, end):
    assert resting(measured, end)[1][0].enough == 0


def test_repeats_stay_within_the_budget():
    recorder = Recorder(beside(1.0, seconds=10.0))
    session(recorder).run(TrialRequest(kind="speed", batches=(8,)))
    assert recorder.trials == []


def test_a_trial_that_cannot_end_in_the_time_that_is_left_is_not_begun():
    clock = Clock()
    recorder = Recorder(trial(seconds=6.0), trial())
    search = session(recorder, deadline=Deadline(budget_s=60.0, since=clock.now_s, clock=clock))
    search.run(TrialRequest(kind="default", batches=(8,)))
    # beside its steps the first took 5.5 s; of the seconds nobody accounted for the clock knows
    clock.now_s += 55.0
    late = TrialRequest(kind="speed", batches=(8,))
    assert (search.left_s, search.run(late).end) == (5.0, End.TIME_UP)
    assert (search.fit(8).end, search.steady(8, steps=20).end) == (End.TIME_UP, End.TIME_UP)
    assert search.needed_bytes(8) is None
    assert len(recorder.asked) == len(search.journal.trials) == 1


def test_all_the_time_between_two_trials_is_the_seconds_of_the_second():
    clock = Clock()
    search = session(Recorder(trial(), trial()), deadline=Deadline(budget_s=60.0, since=clock.now_s, clock=clock))
    clock.now_s += 7.0
    search.run(TrialRequest(kind="default", batches=(8,)))
    assert [one.seconds for one in search.journal.trials] == [7.0]
    assert search.spent_s == 7.0


def test_a_trial_that_hangs_may_cost_a_third_of_what_is_left():
    clock = Clock()
    recorder = Recorder(trial(), trial())
    search = session(recorder, deadline=Deadline(budget_s=60.0, since=clock.now_s, clock=clock))
    search.run(TrialRequest(kind="default", batches=(8,)))
    clock.now_s += 30.0
    search.run(TrialRequest(kind="speed", batches=(8,)))
    assert recorder.asked[1][1].most_silence_s == pytest.approx(10.0)
    assert recorder.asked[1][1].deadline is search.deadline


def test_the_users_error_ends_the_search_with_their_words():
    search = session(Recorder(trial(End.USER_ERROR, detail="KeyError: 'x'", traceback="Traceback ...", stage="train")))
    with pytest.raises(GpudocError, match="KeyError: 'x'"):
        search.run(TrialRequest(kind="speed", batches=(8,)))
    assert len(search.journal.trials) == 1


def test_patience_grows_with_the_expected_step():
    recorder = Recorder(trial(), trial())
    search = session(recorder)
    search.run(TrialRequest(kind="speed", batches=(8,)))
    search.run(TrialRequest(kind="speed", batches=(1600,)))
    assert recorder.asked[0][1].silence_s == 60.0
    assert recorder.asked[1][1].silence_s == pytest.approx(4000.0)


def test_what_can_be_afforded_follows_from_speed_and_share():
    search = session(Recorder(trial()))
    assert search.can_afford(1e9)
    search.run(TrialRequest(kind="speed", batches=(8,)))
    search.share_s = 12.0
    assert search.can_afford(160)
    assert not search.can_afford(161)


def test_a_trial_may_start_when_it_should_end_before_the_reserve_is_touched():
    default = TrialRequest(kind="default", batches=(8,))
    search = session(Recorder(trial(seconds=3.0)))
    search.run(default)
    assert search.runner.overhead_s == 2.5
    assert search.runner.expected_s(32, steps=4) == 2.5 + 4 * 32 / 16.0
    search.reserved_s = 60.0 - 3.0 - 10.5
    assert can_start(search, 32, steps=4)
    assert search.runner.expected_s(32, steps=4, variant=Variant(precision="bf16")) == 10.5
    search.runner.start_s = 5.0
    assert search.runner.expected_s(32, steps=4, variant=Variant(allocator="exact")) == 15.5
    assert search.runner.expected_s(32, steps=4, variant=Variant(wait_policy="passive")) == 15.5
    assert not can_start(search, 33, steps=4)


def test_memory_is_tried_with_as_many_micro_batches_as_training_needs():
    recorder = Recorder(trial())
    search = session(recorder, accumulate_below=64)
    search.calibrate(100)
    assert recorder.asked[0][0].num_micros(63) == 2
    assert recorder.asked[0][0].num_micros(64) == 1


def test_a_journal_that_cannot_be_written_is_said_once():
    recorder = Recorder(trial(), trial())
    search = session(recorder)
    search.journal = Journal(None, lost="No space left on device")
    search.run(TrialRequest(kind="speed", batches=(8,)))
    search.run(TrialRequest(kind="speed", batches=(9,)))
    assert sum("Cannot write the journal" in line for line in recorder.said) == 1


def test_a_trial_in_one_line():
    assert describe_trial(trial()) == "  speed batch 8: fits, peak 1 MiB, 16 samples/s, 2 s"
    failed = trial(End.OOM_HOST, stage="train", failed_batch=9)
    assert describe_trial(failed) == "  speed batch 9: memory ran out in train, peak 1 MiB at 8, 2 s"
