from gpudoc.tune.search.journal import Header, open_journal
from gpudoc.tune.trial.messages import End, Feed, Request
from tests.script.pretended import Pretended, session_of


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
    found = session_of(Pretended(batch=8), runner=runner, reference=512).calibrate(4096)
    assert [request.batches[0] for request in runner.requests] == [512, 128, 256]
    assert [point.batch for point in found.points] == [128]


def test_calibrating_says_when_nothing_fits():
    runner = Pretended(fixed_bytes=300 << 20)
    found = session_of(Pretended(), runner=runner).calibrate(4096)
    assert found.end is End.OOM_HOST
    assert found.points == ()
    assert found.request.kind == "calibrate"


def test_the_need_of_a_batch_is_measured_without_a_limit():
    session = session_of(Pretended())
    assert session.needed_bytes(1024) == (64 << 20) + (1024 << 20)


def test_trials_of_a_batch_are_fed_by_the_chosen_loader():
    runner = Pretended()
    session = session_of(runner, feed=Feed(num_workers=3))
    session.fit(8)
    assert runner.requests[-1].feed == Feed(num_workers=3)


def test_a_larger_batch_is_given_more_time():
    session = session_of(Pretended())
    small, large = (session.patience_s(Request(kind="fit", batches=(batch,), steps=4)) for batch in (8, 800))
    assert large > small + 10


def test_a_launch_is_not_afforded_beyond_the_share():
    session = session_of(Pretended())
    session.share_s = 100.0
    assert session.can_afford(1)
    assert not session.can_afford(1e9)
    session.spent_s = 99.0
    assert not session.can_afford(1)


def test_the_batches_are_checked_after_each_trial():
    session = session_of(Pretended())
    checked = []
    session.check = lambda trials: checked.append([trial.request.batches for trial in trials])
    session.fit(8)
    session.fit(16)
    assert checked == [[(8,)], [(8,), (16,)]]
