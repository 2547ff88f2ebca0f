import contextlib
import json
import math
import shutil
import sys
import time
import types

import pytest

from gpudoc.errors import GpudocError
from gpudoc.train.report import sinks as report
from gpudoc.train.report.sinks import NoSinks, Sinks, finite, open_extra
from gpudoc.train.state.run_dir import Run
from tests.full_disk import full_at
from tests.train.support import train_here, write_workload


def test_the_first_object_is_a_line_at_once_and_the_next_ones_within_half_a_second(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    sinks = Sinks(Run(tmp_path))

    def lines():
        return [json.loads(line) for line in Run(tmp_path).metrics.read_text().splitlines()]

    sinks.add({"step": 1, "loss": 0.5})
    assert lines() == [{"step": 1, "loss": 0.5}]
    now[0] += 0.4
    sinks.add({"step": 2, "loss": math.nan, "seconds": {"compute": math.inf}})
    assert len(lines()) == 1
    now[0] += 0.2
    sinks.add({"step": 3})
    assert lines()[1:] == [{"step": 2, "loss": None, "seconds": {"compute": None}}, {"step": 3}]
    sinks.add({"step": 4})
    sinks.write()
    assert lines()[3:] == [{"step": 4}]
    sinks.add({"step": 5})
    sinks.close()
    assert lines()[4:] == [{"step": 5}]


def test_going_on_appends(tmp_path):
    for step in (1, 2):
        sinks = Sinks(Run(tmp_path))
        sinks.add({"step": step})
        sinks.close()
    assert len(Run(tmp_path).metrics.read_text().splitlines()) == 2


def test_rows_that_a_full_disk_refused_follow_when_there_is_room_and_it_is_told_once(tmp_path):
    sinks = Sinks(Run(tmp_path))
    for step in range(4):
        with full_at(20) if step in (1, 2) else contextlib.nullcontext():
            sinks.add({"step": step})
            sinks.write()
    told = sinks.tell()
    sinks.close()
    assert [json.loads(line)["step"] for line in Run(tmp_path).metrics.read_text().splitlines()] == [0, 1, 2, 3]
    goes_on = "File too large; training continues; they are kept and tried again"
    assert told == [
        f"{tmp_path}/metrics.jsonl: rows cannot be written: {goes_on}",
        f"{tmp_path}/metrics.jsonl: the waiting rows are written",
    ]
    assert sinks.tell() == []


def test_rows_follow_into_a_folder_that_was_removed_and_is_back(tmp_path):
    run = Run(tmp_path / "run")
    run.path.mkdir()
    sinks = Sinks(run)
    for step in range(4):
        if step == 1:
            shutil.rmtree(run.path)
        if step == 3:
            run.path.mkdir()
        sinks.add({"step": step})
        sinks.write()
    assert [json.loads(line)["step"] for line in run.metrics.read_text().splitlines()] == [1, 2, 3]
    assert ["No such file" in text for text in sinks.tell()] == [True, False]
    run.metrics.rename(run.path / "moved")
    sinks.add({"step": 4})
    sinks.close()
    assert run.metrics.read_text() == '{"step": 4}\n'


def test_rows_that_no_disk_took_are_counted_at_the_end(tmp_path):
    Run(tmp_path).metrics.symlink_to("/dev/full")
    sinks = Sinks(Run(tmp_path))
    for step in range(3):
        sinks.add({"step": step})
    sinks.close()
    first, last = sinks.tell()
    assert "No space left on device; training continues" in first
    assert last.endswith("metrics.jsonl: 3 rows are missing because they could not be written: No space left on device")


def test_rows_that_wait_take_no_more_memory_than_there_is_for_them(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "_MOST_WAITING_BYTES", 100)
    Run(tmp_path).metrics.symlink_to("/dev/full")
    sinks = Sinks(Run(tmp_path))
    for step in range(100):
        sinks.add({"step": step})
    sinks.write()
    assert len(sinks._rows) < 200
    sinks.close()
    assert "100 rows are missing" in sinks.tell()[-1]


def test_a_tracker_that_fails_gets_no_more_and_the_rows_are_written(tmp_path, monkeypatch):
    def fail(_):
        raise ConnectionError("the server does not answer\ntry later")

    module = types.SimpleNamespace(init=lambda **_: None, log=fail, finish=lambda: None)
    monkeypatch.setitem(sys.modules, "wandb", module)
    sinks = Sinks(Run(tmp_path), open_extra(("wandb",), Run(tmp_path), {}))
    for step in (1, 2):
        sinks.add({"step": step})
        sinks.write()
    sinks.close()
    assert sinks.tell() == [
        "wandb failed and will receive no more figures: ConnectionError: the server does not answer"
    ]
    assert len(Run(tmp_path).metrics.read_text().splitlines()) == 2


def test_a_training_whose_metrics_have_no_room_comes_to_its_end_with_its_checkpoints(tmp_path, capsys):
    write_workload(tmp_path)
    run = tmp_path / "runs" / "full"
    run.mkdir(parents=True)
    (run / "metrics.jsonl").symlink_to("/dev/full")
    line = ("--model", "cfg.yaml", "--profile", "off", "--set", "log_every=1", "--set", "checkpoint_every=2")
    assert train_here(tmp_path, *line, "--steps", "4", "--run-dir", "runs/full") == 0
    said = capsys.readouterr().err
    assert said.count("rows cannot be written: No space left on device; training continues") == 1
    assert "rows are missing" in said
    assert (run / "checkpoints" / "step-4" / "manifest.json").is_file()
    assert json.loads((run / "summary.json").read_text())["status"] == "finished"


def test_a_tracker_gets_nested_figures_under_flat_names(tmp_path, monkeypatch):
    logged = []
    module = types.SimpleNamespace(
        init=lambda **options: logged.append(options), log=logged.append, finish=lambda: logged.append("finished")
    )
    monkeypatch.setitem(sys.modules, "wandb", module)
    sinks = Sinks(Run(tmp_path), open_extra(("wandb",), Run(tmp_path), {"lr": 0.1}))
    sinks.add({"step": 3, "loss": 0.25, "seconds": {"compute": 1.5}, "name": "text", "flag": True})
    sinks.close()
    assert logged[0]["config"] == {"lr": 0.1}
    assert logged[1:] == [{"step": 3, "loss": 0.25, "seconds/compute": 1.5}, "finished"]


@pytest.mark.parametrize(("name", "says"), [("wandbb", "unknown"), ("trackio", "not installed")])
def test_a_sink_that_is_not_there_says_what_to_type(tmp_path, monkeypatch, name, says):
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(GpudocError, match=says):
        open_extra((name,), Run(tmp_path), {})


def test_other_ranks_write_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sinks = NoSinks()
    sinks.add({"step": 1})
    sinks.close()
    assert not list(tmp_path.iterdir())


def test_numbers_that_json_cannot_say_become_null():
    assert finite({"a": [1.0, math.inf], "b": (math.nan,)}) == {"a": [1.0, None], "b": [None]}
