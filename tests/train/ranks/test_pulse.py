"""Signs of life: what a rank stores is what another process reads, while it runs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gpudoc.train.ranks import pulse as of
from gpudoc.train.ranks.pulse import FOLDER, Pulse, open_pulse, read_beats, run_folder
from tests.full_disk import FILL, run_on_small_disk


def test_each_sign_shows_in_the_beat():
    pulse = Pulse()
    pulse.belong(2, 4)
    seen = [pulse.beat()]
    for sign in (
        lambda: pulse.begin(7),
        lambda: pulse.now(of.COMPUTING),
        lambda: pulse.enter(of.VOTE),
        pulse.leave,
        lambda: pulse.now(of.EVALUATING),
        lambda: pulse.now(of.EVALUATING),
    ):
        sign()
        seen.append(pulse.beat())
    assert len({(b.step, b.doing, b.beats, b.calls, b.call) for b in seen}) == len(seen)
    assert (seen[0].rank, seen[0].world, seen[0].pid) == (2, 4, os.getpid())
    assert (seen[1].step, seen[1].does) == (7, "reads its samples")
    assert (seen[3].calls, seen[3].call) == (1, "vote")
    assert (seen[4].calls, seen[4].call) == (1, "")


def test_seconds_in_collectives_are_counted_apart(monkeypatch):
    now = iter([10.0, 12.5, 20.0, 21.0])
    monkeypatch.setattr(of, "clock", lambda: next(now))
    pulse = Pulse()
    for _ in range(2):
        pulse.enter(of.TOTAL)
        pulse.leave()
    assert pulse.waited_s == 3.5
    pulse.own_s, pulse.read_s = 4.0, 1.0
    assert (pulse.take(), pulse.take()) == ((4.0, 1.0), (0.0, 0.0))


def test_whoever_started_the_ranks_reads_them_while_they_run(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    here = open_pulse(0, 2)
    code = (
        "import sys; from gpudoc.train.ranks.pulse import VOTE, open_pulse; p = open_pulse(1, 2); p.begin(5); "
        "p.enter(VOTE); p.name_run('runs/mine'); print('there', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "there\n"
        here.begin(4)
        first, second = read_beats(tmp_path)
        assert (first.rank, first.step, first.pid) == (0, 4, os.getpid())
        assert (second.rank, second.step, second.call, second.pid) == (1, 5, "vote", other.pid)
        here.begin(6)
        assert read_beats(tmp_path)[0].step == 6
        assert str(run_folder(tmp_path)) == "runs/mine"
    finally:
        other.communicate(timeout=60)


def test_a_rank_that_is_started_again_has_signs_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    before = open_pulse(0, 1)
    after = open_pulse(0, 1)
    after.begin(3)
    before.begin(9)
    assert [beat.step for beat in read_beats(tmp_path)] == [3]


@pytest.mark.parametrize("folder", ["", "/proc/nowhere"])
def test_without_a_folder_the_signs_stay_in_the_process(folder, monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER, folder)
    pulse = open_pulse(1, 2)
    pulse.begin(3)
    assert pulse.beat().step == 3
    pulse.name_run(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_no_rank_wrote_is_no_rank(tmp_path):
    (tmp_path / "rank-0").write_bytes(b"")
    (tmp_path / "rank-1").write_bytes(bytes(128))
    assert read_beats(tmp_path) == []
    assert run_folder(tmp_path) is None


def test_a_rank_goes_on_with_signs_of_its_own_when_the_disk_is_full(tmp_path):
    code = f"""{FILL}
import sys
from gpudoc.train.ranks.pulse import open_pulse, read_beats
from pathlib import Path
fill(sys.argv[1])
pulse = open_pulse(1, 2)
pulse.begin(5)
print(pulse.beat().step, read_beats(Path(sys.argv[1])))
"""
    done = run_on_small_disk(tmp_path, [sys.executable, "-c", code, str(tmp_path)], **{FOLDER: str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "5 []\n", "")
