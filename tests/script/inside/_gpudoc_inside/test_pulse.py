"""Signs of life that the inside writes are what train's watch reads; only in a run, and only of who trains."""

from __future__ import annotations

import os
import sys

import pytest

from gpudoc.script.inside._gpudoc_inside.report import HookReport, RankPulse
from gpudoc.train.ranks.pulse import BUILDING, ENDED, EVALUATING, OWN_CODE, READING, read_beats
from tests.full_disk import FILL, run_on_small_disk
from tests.script.watched import HookOrder, watch_text


@pytest.fixture
def made(tmp_path, monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)

    def make(purpose="run"):
        (tmp_path / "order.json").write_text(f'{{"purpose": "{purpose}"}}')
        report = HookReport(str(tmp_path))
        return report, RankPulse(report)

    return make


def only(folder):
    (beat,) = read_beats(folder)
    return beat


def test_each_sign_is_read_as_what_it_is(made, tmp_path):
    _, pulse = made()
    assert read_beats(tmp_path) == []
    seen = []
    for sign in (
        lambda: pulse.asks(True),
        pulse.goes_on,
        lambda: pulse.steps(1),
        lambda: pulse.asks(False),
        pulse.ends,
    ):
        sign()
        seen.append(only(tmp_path))
    assert [beat.doing for beat in seen] == [READING, OWN_CODE, OWN_CODE, EVALUATING, ENDED]
    assert [beat.step for beat in seen] == [0, 0, 1, 1, 1]
    assert [beat.beats for beat in seen[:4]] == [1, 2, 3, 4]
    assert {(beat.rank, beat.world, beat.pid) for beat in seen} == {(0, 1, os.getpid())}


def test_a_rank_of_a_launcher_shows_itself_once_torch_is_there(made, tmp_path, monkeypatch):
    report, pulse = made()
    report.start()
    pulse.builds()
    assert read_beats(tmp_path) == []
    for name, value in (("RANK", "3"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    pulse.builds()
    beat = only(tmp_path)
    assert (beat.rank, beat.world, beat.doing) == (3, 4, BUILDING)


def test_trials_have_no_signs_and_who_steps_aside_has_ended(made, tmp_path):
    _, pulse = made("trial")
    pulse.steps(3)
    assert list(tmp_path.glob("rank-*")) == []
    report, pulse = made()
    pulse.steps(3)
    report.step_aside("a test", ValueError("no"))
    pulse.steps(4)
    assert (only(tmp_path).doing, only(tmp_path).step) == (ENDED, 3)


def test_a_folder_that_cannot_be_written_is_no_fault_of_the_script(made, tmp_path):
    report, pulse = made()
    report.folder = str(tmp_path / "gone")
    pulse.steps(3)
    pulse.asks(True)
    assert not report.off


@pytest.mark.slow
def test_a_fault_of_its_own_is_told_and_the_script_draws_on(made, monkeypatch):
    report, pulse = made()
    monkeypatch.setattr(pulse, "_opened", lambda: {}["planted"])
    pulse.asks(True)
    pulse.goes_on()
    assert report.off


def test_loader_workers_of_a_script_have_no_signs_of_their_own(tmp_path):
    text = """
    for x, y in DataLoader(Rows(), 4, num_workers=2):
        step(x, y)
    with torch.no_grad():
        for x, y in DataLoader(Rows(8), 4):
            model(x)
    """
    found = watch_text(tmp_path, text, HookOrder(purpose="run"))
    assert (found.code, found.seen[0].total.steps) == (0, 6)
    beat = only(tmp_path / "told-0")
    assert (beat.step, beat.doing) == (6, ENDED)


FULL = f"""{FILL}
import sys
from gpudoc.script.inside._gpudoc_inside.report import HookReport, RankPulse
folder = sys.argv[1]
open(folder + "/order.json", "w").write('{{"purpose": "run"}}')
report = HookReport(folder)
pulse = RankPulse(report)
fill(folder)
pulse.asks(True)
pulse.steps(3)
print("goes on", report.off)
"""


def test_a_full_disk_is_no_fault_of_the_script(tmp_path):
    done = run_on_small_disk(tmp_path, [sys.executable, "-c", FULL, str(tmp_path)])
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on False\n", "")
