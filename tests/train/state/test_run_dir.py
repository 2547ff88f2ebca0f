"""Which run directory is used, that two never share one, and what a resumed run keeps."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gpudoc.errors import GpudocError
from gpudoc.train.state.run_dir import Lock, Run, choose, cut_metrics, identity, write_config
from gpudoc.workload.config import Config
from tests.train.support import environment

CONFIG = Config.model_validate({"model": {"target": "m:build"}, "data": {"target": "m:Data"}})
FIXED = identity(CONFIG, {"seed": 0, "global_batch": 8})


def begun(path, fixed=FIXED, status=None, steps=4):
    run = Run(path)
    path.mkdir(parents=True)
    run.metrics.write_text('{"step": 1}\n')
    write_config(run, CONFIG, fixed, "cfg")
    if status:
        run.summary.write_text(json.dumps({"status": status, "steps": steps}))
    return run


def test_the_newest_unfinished_run_of_this_config_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert choose("cfg", None, "auto", FIXED, 9).run.path.as_posix() == "runs/cfg"
    begun(tmp_path / "runs/cfg", status="finished")
    assert choose("cfg", None, "auto", FIXED, 9).run.path.as_posix() == "runs/cfg-2"
    begun(tmp_path / "runs/cfg-2", status="stopped")
    begun(tmp_path / "runs/cfg-3", fixed={**FIXED, "seed": 1}, status="stopped")
    assert choose("cfg", None, "auto", FIXED, 9).run.path.as_posix() == "runs/cfg-2"
    assert choose("cfg", None, "never", FIXED, 9).run.path.as_posix() == "runs/cfg-4"


def test_what_may_not_change_is_named_with_both_values(tmp_path):
    begun(tmp_path / "r")
    with pytest.raises(GpudocError, match="seed was 0, is 3"):
        choose("cfg", None, str(tmp_path / "r"), {**FIXED, "seed": 3}, 9)
    with pytest.raises(GpudocError, match="global_batch was 8, is 16"):
        choose("cfg", tmp_path / "r", "auto", {**FIXED, "global_batch": 16}, 9)


def test_never_refuses_a_directory_that_holds_a_run(tmp_path):
    begun(tmp_path / "r")
    with pytest.raises(GpudocError, match="holds a run already"):
        choose("cfg", tmp_path / "r", "never", FIXED, 9)


def test_two_processes_never_share_a_run_directory(tmp_path):
    lock = Lock(Run(tmp_path / "r"))
    program = (
        "import pathlib, sys\n"
        "from gpudoc.train.state.run_dir import Lock, Run\n"
        "from gpudoc.errors import GpudocError\n"
        "try:\n"
        "    Lock(Run(pathlib.Path(sys.argv[1])))\n"
        "except GpudocError as problem:\n"
        "    print(problem.message)\n"
    )
    line = [sys.executable, "-c", program, str(tmp_path / "r")]
    told = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=60).stdout
    assert "in use by process" in told
    lock.release()
    assert subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=60).stdout == ""


def test_an_unwritable_place_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GpudocError, match="cannot be written"):
        Lock(Run(tmp_path / "file" / "r"))


def test_metrics_are_cut_back_to_the_checkpoint_and_a_torn_line_is_dropped(tmp_path):
    run = Run(tmp_path)
    run.metrics.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"step": 2, "los')
    cut_metrics(run, 2)
    assert run.metrics.read_text() == '{"step": 1}\n{"step": 2}\n'
