import pytest

from gpudoc.errors import GpudocError
from gpudoc.profile.model import Loader
from gpudoc.script.command import Command
from gpudoc.script.runner import eaten_batch
from gpudoc.tune.search.journal import Header, open_journal
from gpudoc.tune.trial.deadline import Deadline
from gpudoc.tune.trial.messages import End, TrialRequest
from tests.script.pretended import Pretended, session_of
from tests.tune.trial.test_deadline import Clock


def test_what_the_journal_knows_is_not_started_again_and_counts_once(tmp_path):
    runner = Pretended()
    header = Header(key={"command": "x"}, limit_bytes=1)
    first = session_of(runner, journal=open_journal(tmp_path / "j.jsonl", header))
    told = first.fit(16)
    again = session_of(runner, journal=open_journal(tmp_path / "j.jsonl", header))
    assert again.fit(16) == told
    assert again.fit(16) == told
    assert runner.requests == []
    assert again.spent_s == told.seconds


def test_calibrating_goes_up_until_the_line_through_the_peaks_need_not_reach_far():
    runner = Pretended(batch=8)
    found = session_of(runner).calibrate(4096)
    assert [point.batch for point in found.points] == [8, 16, 96]
    assert found.fits


def test_calibrating_goes_on_while_memory_does_not_grow():
    runner = Pretended(batch=2, bytes_per_sample=1 << 16)
    found = session_of(runner).calibrate(4096)
    assert [point.batch for point in found.points] == [2, 4, 16, 64, 256, 1536]


def test_calibrating_goes_down_where_the_scripts_own_batch_does_not_fit():
    runner = Pretended(batch=512)
    found = session_of(Pretended(batch=8), launches=runner, reference=512).calibrate(4096)
    assert [request.batches[0] for request in runner.requests] == [512, 128, 256]
    assert [point.batch for point in found.points] == [128]


def test_calibrating_says_when_nothing_fits():
    runner = Pretended(fixed_bytes=300 << 20)
    found = session_of(Pretended(), launches=runner).calibrate(4096)
    assert found.end is End.OOM_HOST
    assert found.points == ()
    assert found.request.kind == "calibrate"


def test_the_need_of_a_batch_is_measured_without_a_limit():
    session = session_of(Pretended())
    assert session.needed_bytes(1024) == (64 << 20) + (1024 << 20)


def test_trials_of_a_batch_are_fed_by_the_chosen_loader():
    runner = Pretended()
    session = session_of(runner, feed=Loader(num_workers=3))
    session.fit(8)
    assert runner.requests[-1].feed == Loader(num_workers=3)


def test_a_larger_batch_is_given_more_time():
    session = session_of(Pretended())
    small, large = (
        session.runner.usual_patience_s(TrialRequest(kind="fit", batches=(batch,), steps=4)) for batch in (8, 800)
    )
    assert large > small + 10


def test_a_launch_is_not_afforded_beyond_the_share():
    session = session_of(Pretended())
    session.share_s = 100.0
    assert session.can_afford(1)
    assert not session.can_afford(1e9)
    session.spent_s = 99.0
    assert not session.can_afford(1)


def test_a_placeholder_that_something_eats_is_found_out():
    session = session_of(Pretended(eats=True), command=Command(("python", "t.py", "{batch}")))
    session.fit(8)
    with pytest.raises(GpudocError, match="does not reach the loader: with 8 and 16") as problem:
        session.fit(16)
    assert problem.value.exit_code == 2


@pytest.mark.parametrize("given", [[(8, 4), (16, 8)], [(8, 32)], [(8, None), (16, None)]])
def test_a_batch_that_changes_the_loader_or_cannot_be_seen_is_not_eaten(given):
    assert eaten_batch("python t.py {batch}", given, "t.py:7") is None


class Beside(Pretended):
    """Others keep that many CPUs busy during one launch after the other, then none."""

    def __init__(self, *others, **model):
        super().__init__(**model)
        self.others = list(others)

    def run(self, request, *, patience_s):
        trial = super().run(request, patience_s=patience_s)
        told = {"other_cpus": self.others.pop(0) if self.others and request.kind != "look" else 0.0, "busy_share": 1.0}
        return trial.model_copy(update={"measured": {**trial.measured, **told}})


def timed(repeat):
    return TrialRequest(kind="default", batches=(), steps=24, repeat=repeat)


def test_a_launch_that_others_disturbed_is_repeated_and_the_least_disturbed_kept():
    runner = Beside(1.5, 0.5)
    session = session_of(runner)
    before_s = session.runner.overhead_s
    found = session.run(timed(0))
    assert len(runner.requests) == 3
    assert (found.measured["other_cpus"], found.seconds, session.spent_s) == (0.0, 15.0, 15.0)
    assert [trial.measured["other_cpus"] for trial in session.journal.trials] == [0.0]
    # a launch takes as long as one takes, however often it was repeated
    assert session.runner.overhead_s == before_s == 5.0


def test_launches_on_a_machine_that_stays_busy_and_those_that_time_nothing_run_once():
    runner = Beside(*[1.0] * 9)
    session = session_of(runner)
    session.fit(8)
    assert len(runner.requests) == 1
    session.run(timed(0))
    assert len(runner.requests) == 4
    session.run(timed(1))
    assert len(runner.requests) == 5


def test_repeated_launches_stay_within_their_share_of_the_budget():
    runner = Beside(*[1.0] * 9)
    session_of(runner, budget_s=60.0).run(timed(0))
    # of 60 s 9, in which one launch of 5 s can be repeated
    assert len(runner.requests) == 2


class Hanging(Pretended):
    """Says nothing for as long as it is listened to."""

    def __init__(self, clock):
        super().__init__()
        self.clock, self.patience_s = clock, []

    def run(self, request, *, patience_s):
        trial = super().run(request, patience_s=patience_s)
        self.patience_s.append(patience_s)
        self.clock.now_s += patience_s
        return trial.model_copy(update={"end": End.HANG, "detail": "0 optimizer steps", "seconds": patience_s})


def test_a_launch_that_hangs_costs_a_third_of_what_is_left_and_one_that_cannot_end_is_not_begun():
    clock = Clock()
    runner = Hanging(clock)
    session = session_of(runner)
    session.deadline = Deadline(budget_s=60.0, since=clock.now_s, clock=clock)
    runner.patience_s.clear()
    ends = [session.run(TrialRequest(kind="loader", batches=(), repeat=turn)).end for turn in range(12)]
    assert runner.patience_s[0] == pytest.approx(20.0)
    assert runner.patience_s[1] == pytest.approx(40.0 / 3)
    assert set(ends) == {End.TIME_UP}
    assert session.deadline.spent_s <= 60.0
    # the last ones were not begun, and are in no journal
    assert len(session.journal.trials) == len(runner.patience_s) < 12
