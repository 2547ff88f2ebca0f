"""A whole run of gpu-check over steps that are small programs: it goes on, it ends, and its record is kept."""

import argparse
import json
import sys
import time
from pathlib import Path

import pytest

from benchmarks.gpu_check import __main__ as program
from benchmarks.gpu_check import runner
from benchmarks.gpu_check.keeping import Keeper, latest_of, name_of, records
from benchmarks.gpu_check.model import Comparison, Outcome, Record, Result, Step
from benchmarks.gpu_check.steps import Place, by_result, by_status, quick_plan, whole_plan
from tests.full_disk import full_at


def record(**changes):
    known = {"machine": {"gpu0.name": "Some GPU"}, "gpudoc": "0", "commit": "abc", "began": "2026-11-25 01:00:00 UTC"}
    return Record(**{**known, **changes})


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Carries out steps: (exit status, record); nobody asks a card."""
    monkeypatch.setattr(runner, "held", lambda: ())
    monkeypatch.setattr(runner, "why_dead", lambda: "")

    def start(*plan, total_s=600.0, path=tmp_path / "r.json"):
        check = program.Check(record=record(), keeper=Keeper(path, print), total_s=total_s, began=time.monotonic())
        with runner.stoppable():
            return check.carry_out(plan), check

    return start


def step(name, code="pass", **changes):
    command = (sys.executable, "-c", code)
    return Step(**{"name": name, "command": command, "limit_s": 60.0, "judge": by_status, **changes})


def states(check):
    return [(one.step, one.state) for one in check.record.outcomes]


def test_a_step_that_fails_does_not_end_the_run(run, tmp_path):
    status, check = run(step("bad", "raise SystemExit('it broke')"), step("good"))
    assert status == 1
    assert states(check) == [("bad", "failed"), ("good", "passed")]
    kept = Record.load(tmp_path / "r.json")
    assert kept.failed == ["bad"]
    assert "it broke" in kept.outcomes[0].output


def test_after_a_gpu_was_lost_no_step_waits_for_it(run, monkeypatch):
    monkeypatch.setattr(runner, "why_dead", lambda: "RuntimeError: CUDA error: unknown error")
    status, check = run(step("hot", "raise SystemExit(1)"), step("next"), step("absent", absent="needs two GPUs"))
    assert status == 1
    assert [state for _, state in states(check)] == ["failed", "left out", "left out"]
    said = check.record.outcomes[1].sentences
    assert said == ["the GPU has not computed since hot: RuntimeError: CUDA error: unknown error"]


def test_a_run_that_is_stopped_keeps_its_record_and_names_what_did_not_run(run, tmp_path):
    stops = "import os, signal, time; os.kill(os.getppid(), signal.SIGTERM); time.sleep(600)"
    status, _ = run(step("first"), step("second", stops), step("third"))
    assert status == 130
    kept = Record.load(tmp_path / "r.json")
    assert [one.state for one in kept.outcomes] == ["passed", "stopped", "left out"]
    assert kept.outcomes[1].sentences == ["the run was stopped by SIGTERM"]


def test_without_time_the_rest_is_left_out_and_said_to_be(run):
    _, check = run(step("late"), total_s=5.0)
    assert check.record.outcomes[0].sentences == ["no time left"]


def test_what_is_repeated_is_compared_with_the_first_time(run, tmp_path):
    number = tmp_path / "number"
    number.write_text("100")
    compared = Result(comparisons=[Comparison(name="speed", guessed=None, measured=0.0)]).to_line()
    code = (
        f"import json, pathlib; p = pathlib.Path({str(number)!r}); n = float(p.read_text()); "
        "p.write_text(str(n * 1.1)); "
        f"r = json.loads({compared!r}); r['comparisons'][0]['measured'] = n; print(json.dumps(r))"
    )
    _, check = run(step("one", code, judge=by_result, is_repeated=True))
    assert states(check) == [("one", "passed"), ("one again", "passed")]
    assert check.record.differences == ["one: speed: 100 MiB at first, 110 MiB then"]


def test_a_record_that_no_longer_fits_is_written_elsewhere_or_shown(run, tmp_path, capsys, monkeypatch):
    (tmp_path / "small").mkdir()
    monkeypatch.setattr("benchmarks.gpu_check.keeping._other_places", lambda name: iter(()))
    with full_at(100):
        status, check = run(step("good"), path=tmp_path / "small" / "r.json")
    said = capsys.readouterr().out
    assert status == 0
    assert check.keeper.path is None
    assert said.count("cannot be written: File too large") == 1
    shown = json.loads(said[said.index("\n{") :])
    assert shown["outcomes"][0]["step"] == "good"


def test_the_first_other_place_with_room_takes_the_record(run, tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.gpu_check.keeping._other_places", lambda name: iter([tmp_path / "other" / name]))
    (tmp_path / "file").write_text("no folder")
    _, check = run(step("good"), path=tmp_path / "file" / "r.json")
    assert check.keeper.path == tmp_path / "other" / "r.json"


def test_a_record_names_neither_host_nor_user_and_reads_back_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/jane.doe")
    home = Path.home()
    kept = record(outcomes=[Outcome(step="one", state="failed", sentences=[f"{home}/secret/x.py"], output=str(home))])
    kept.outcomes.append(
        Outcome(step="two", state="passed", comparisons=[Comparison(name="a", guessed=2.0, measured=2.1)])
    )
    Keeper(tmp_path / "r.json", print).keep(kept)
    text = (tmp_path / "r.json").read_text()
    assert f"{home}/secret" not in text
    assert '"ratio": 1.05' in text
    assert Record.load(tmp_path / "r.json").to_text() == text


def test_two_runs_on_one_day_are_two_records_and_the_last_one_is_found(tmp_path):
    from datetime import datetime, timezone

    for second in (1, 2):
        name = name_of("NVIDIA H100 80GB HBM3", datetime(2026, 11, 25, 1, 0, second, tzinfo=timezone.utc))
        Keeper(tmp_path / name, print).keep(record(commit=str(second)))
    assert len(list(records(tmp_path))) == 2
    assert latest_of("Some GPU", tmp_path)[1].commit == "2"
    assert latest_of("Another GPU", tmp_path) is None


@pytest.mark.parametrize(("is_quick", "total_s"), [(True, program.QUICK_S), (False, program.WHOLE_S)])
def test_the_limits_of_one_gpu_fit_into_the_time(tmp_path, is_quick, total_s):
    plan = list(quick_plan() if is_quick else whole_plan(Place(num_gpus=1), tmp_path))
    ours = [one for one in plan if not one.absent]
    assert len({one.name for one in plan}) == len(plan)
    assert sum(one.limit_s * (1 + one.is_repeated) for one in ours) <= total_s
    several = [one for one in whole_plan(Place(num_gpus=2), tmp_path) if not one.absent]
    assert sum(one.limit_s * (1 + one.is_repeated) for one in several) <= program.WHOLE_S + program.SEVERAL_S


def test_a_step_that_cannot_run_here_says_why(tmp_path):
    absent = {one.name: one.absent for one in whole_plan(Place(num_gpus=1), tmp_path) if one.absent}
    assert absent["ranks"] == "needs two GPUs"
    assert absent["spill"] == "this is not WSL"
    assert "--change-limits" in absent["lowered power"]


def test_without_a_gpu_doctor_alone_runs(tmp_path):
    chosen = argparse.Namespace(quick=True, only="", minutes=None)
    plan = list(program.plan_of(Place(num_gpus=0), chosen, tmp_path))
    assert [one.name for one in plan if not one.absent] == ["doctor"]
