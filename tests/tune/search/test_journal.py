import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoc.tune.search.journal import Header, open_journal, recorded_limit
from gpudoc.tune.trial.messages import End, Point, Trial, TrialRequest
from tests.full_disk import full_at

HEADER = Header(key={"model": "abc"}, limit_bytes=1 << 30, start_s=2.5)
RELEASED = Path(__file__).parents[2] / "journals"


def trial(batch):
    return Trial(
        request=TrialRequest(kind="fit", batches=(batch,)),
        end=End.FITS,
        points=(Point(batch=batch, peak_bytes=batch * 10),),
    )


def test_what_was_added_is_found_by_the_next_run(tmp_path):
    path = tmp_path / "deep" / "journal.jsonl"
    journal = open_journal(path, HEADER)
    journal.add(trial(4))
    again = open_journal(path, HEADER)
    assert again.num_replayed == 1
    assert open_journal(path, HEADER.model_copy(update={"start_s": 9.0})).start_s == 2.5
    assert again.find(TrialRequest(kind="fit", batches=(4,))) == trial(4)
    assert again.find(TrialRequest(kind="fit", batches=(5,))) is None
    assert recorded_limit(path, HEADER.key) == 1 << 30


def test_a_timing_that_others_disturbed_is_not_taken_over_and_what_fits_is(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = open_journal(path, HEADER)
    told = {"other_cpus": 1.0, "busy_share": 1.0}
    request = TrialRequest(kind="speed", batches=(4,))
    journal.add(Trial(request=request, end=End.FITS, measured=told))
    journal.add(trial(8).model_copy(update={"measured": told}))
    again = open_journal(path, HEADER)
    assert [one.request.kind for one in again.trials] == ["fit"]
    again.add(Trial(request=request, end=End.FITS))
    assert [one.request.kind for one in open_journal(path, HEADER).trials] == ["fit", "speed"]


def test_a_torn_last_line_is_forgiven_at_every_byte_and_the_next_record_stands_on_its_own(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = open_journal(path, HEADER)
    for batch in (1, 2, 3):
        journal.add(trial(batch))
    whole = path.read_bytes()
    second_end = whole.rfind(b"\n", 0, len(whole) - 1) + 1
    for length in range(second_end, len(whole)):
        path.write_bytes(whole[:length])
        reopened = open_journal(path, HEADER)
        assert [t.request.batches for t in reopened.trials] == [(1,), (2,)]
        reopened.add(trial(3))
        assert path.read_bytes() == whole


def test_a_journal_of_another_workload_machine_or_limit_is_not_used(tmp_path):
    path = tmp_path / "journal.jsonl"
    open_journal(path, HEADER).add(trial(4))
    assert recorded_limit(path, {"model": "other"}) is None
    for change in ({"key": {"model": "other"}}, {"limit_bytes": 1 << 29}):
        assert open_journal(path, HEADER.model_copy(update=change)).trials == []
        path.unlink()
        open_journal(path, HEADER).add(trial(4))


def test_an_error_that_ended_a_search_is_tried_again_and_one_that_it_went_on_from_is_not(tmp_path):
    path = tmp_path / "journal.jsonl"
    failed = trial(5).model_copy(update={"end": End.USER_ERROR})
    journal = open_journal(path, HEADER)
    for one in (failed, trial(4), failed):
        journal.add(one)
    again = open_journal(path, HEADER)
    assert again.trials == [failed, trial(4)]
    again.add(trial(5))
    assert open_journal(path, HEADER).find(failed.request) == trial(5)


def test_fresh_forgets(tmp_path):
    path = tmp_path / "journal.jsonl"
    open_journal(path, HEADER).add(trial(4))
    assert open_journal(path, HEADER, fresh=True).trials == []
    assert open_journal(path, HEADER).trials == []


def test_a_file_that_is_no_journal_is_replaced(tmp_path):
    path = tmp_path / "journal.jsonl"
    first = b'"key": {"model": "abc"}, "limit_bytes": 1073741824}\n'
    others = (b'{"schema": "gpudoc.tune.journal.v9", ' + first, b"{" + first, first.replace(b"1073", b'"1073'))
    for content in (b"", b"\xff\x00", b"[1]\n", b"text\n", *others):
        path.write_bytes(content)
        assert open_journal(path, HEADER).trials == []
        open_journal(path, HEADER).add(trial(1))
        assert len(open_journal(path, HEADER).trials) == 1


def test_a_full_disk_is_said_and_the_trials_stay_in_memory(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = open_journal(path, HEADER)
    before = path.read_bytes()
    with full_at(len(before) + 10):
        journal.add(trial(4))
    assert journal.lost == "File too large"
    journal.add(trial(5))
    assert journal.find(TrialRequest(kind="fit", batches=(5,))) == trial(5)
    assert len(path.read_bytes()) == len(before) + 10, "nothing follows a torn line"
    assert open_journal(path, HEADER).trials == []
    assert path.read_bytes() == before


SEARCH = """
import os, sys
from pathlib import Path
from gpudoc.tune.search.journal import open_journal
from tests.tune.search.test_journal import HEADER, trial
journal = open_journal(Path(sys.argv[1]), HEADER)
journal.add(trial(4))
# as if it were in the middle of a record
os.write(journal._lock.handle, b'{"request":{"kind":"fi')
print("begun", flush=True)
sys.stdin.readline()
journal.add(trial(9))
"""


@pytest.mark.parametrize("fresh", [False, True])
def test_a_second_search_of_the_same_says_so_and_leaves_the_journal_to_the_first(tmp_path, fresh):
    path = tmp_path / "journal.jsonl"
    command = [sys.executable, "-c", SEARCH, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "begun\n"
        before = path.read_bytes()
        second = open_journal(path, HEADER, fresh=fresh)
        assert second.lost == "another search with the same settings uses it"
        assert [one.request.batches for one in second.trials] == ([] if fresh else [(4,)])
        second.add(trial(7))
        assert second.find(TrialRequest(kind="fit", batches=(7,))) == trial(7)
        assert path.read_bytes() == before
        first.kill()
    third = open_journal(path, HEADER)
    assert [one.request.batches for one in third.trials] == [(4,)], "a killed search lets others in"
    assert third.lost == ""


def test_a_pipe_or_a_device_in_the_place_of_a_journal_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link"):
        assert recorded_limit(tmp_path / name, HEADER.key) is None
        journal = open_journal(tmp_path / name, HEADER)
        assert journal.lost
        journal.add(trial(4))
        assert journal.find(TrialRequest(kind="fit", batches=(4,))) == trial(4)


def test_the_journal_of_the_first_release_is_still_read():
    path = RELEASED / "v1.jsonl"
    key = {"config": "abc", "device": "cpu", "method": "1", "model": "m"}
    journal = open_journal(path, Header(key=key, limit_bytes=1073741824))
    assert [t.end.value for t in journal.trials] == ["fits", "fits", "fits", "oom_host", "fits", "leak"]
    assert journal.trials[3].failed_batch == 105
    assert journal.trials[2].point(104).peak_bytes == 1068896256
    assert journal.trials[0].request.feed.num_workers == 0


def test_a_header_of_a_later_version_may_say_more(tmp_path):
    path = tmp_path / "journal.jsonl"
    open_journal(path, HEADER).add(trial(4))
    path.write_bytes(path.read_bytes().replace(b'"start_s"', b'"also":1,"start_s"', 1))
    again = open_journal(path, HEADER)
    assert (again.num_replayed, again.start_s) == (1, 2.5)
