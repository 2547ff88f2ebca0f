"""Which run directory is used, that two never share one, and what a resumed run keeps."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoc.errors import GpudocError
from gpudoc.train.state.run_dir import Run, choose, cut_metrics, identity, lock_run, write_config
from gpudoc.workload.config import Config
from tests.train.support import environment, train_here, write_workload

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
    with pytest.raises(GpudocError, match="already contains a run"):
        choose("cfg", tmp_path / "r", "never", FIXED, 9)


def test_two_processes_never_share_a_run_directory(tmp_path):
    lock = lock_run(Run(tmp_path / "r"))
    program = (
        "import pathlib, sys\n"
        "from gpudoc.train.state.run_dir import Run, lock_run\n"
        "from gpudoc.errors import GpudocError\n"
        "try:\n"
        "    lock_run(Run(pathlib.Path(sys.argv[1])))\n"
        "except GpudocError as problem:\n"
        "    print(problem.message)\n"
    )
    line = [sys.executable, "-c", program, str(tmp_path / "r")]
    told = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=60).stdout
    assert "in use by process" in told
    lock.remove()
    assert subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=60).stdout == ""


def test_an_unwritable_place_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GpudocError, match="cannot be written"):
        lock_run(Run(tmp_path / "file" / "r"))


def test_metrics_are_cut_back_to_the_checkpoint_and_a_torn_line_is_dropped(tmp_path):
    run = Run(tmp_path)
    run.metrics.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"step": 2, "los')
    cut_metrics(run, 2)
    assert run.metrics.read_text() == '{"step": 1}\n{"step": 2}\n'


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00name",
        b"fixed: [1, 2]",
        b"[1]",
        b"[" * 100_000,
        b"a: &a [1]\nfixed: {b: [*a, *a]}\n\tx",
        b"fixed: 5",
    ],
    ids=["no UTF-8", "a list", "no mapping", "deep", "a tab", "a number"],
)
def test_one_damaged_run_keeps_nobody_from_another(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    begun(tmp_path / "runs/cfg", status="stopped")
    begun(tmp_path / "runs/cfg-2", status="stopped")
    (tmp_path / "runs/cfg-2/config.yaml").write_bytes(content)
    assert choose("cfg", None, "auto", FIXED, 9).run.path.as_posix() == "runs/cfg"
    with pytest.raises(GpudocError, match=r"its config\.yaml cannot be read"):
        choose("cfg", None, "runs/cfg-2", FIXED, 9)


def test_values_that_json_does_not_know_are_a_difference_and_no_fault(tmp_path):
    begun(tmp_path / "r")
    (tmp_path / "r" / "config.yaml").write_text("fixed: {seed: 2020-01-01, global_batch: {1: a, b: c}}\n")
    with pytest.raises(GpudocError, match=r"seed was \"2020-01-01\", is 0; global_batch was \{1: 'a', 'b': 'c'\}"):
        choose("cfg", None, str(tmp_path / "r"), {"seed": 0, "global_batch": 8}, 9)


def test_a_summary_or_metrics_nested_without_end_are_no_fault(tmp_path):
    run = begun(tmp_path / "r")
    run.summary.write_text("[" * 100_000)
    run.metrics.write_text('{"step": 1}\n' + "[" * 100_000 + "\n")
    assert not choose("cfg", None, str(tmp_path / "r"), FIXED, 9).finished
    cut_metrics(run, 2)
    assert run.metrics.read_text() == '{"step": 1}\n'


def test_a_place_without_locks_is_not_in_use(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    assert lock_run(Run(tmp_path / "r")).why_not == "No locks available"


def test_a_training_goes_on_without_locks_and_says_so(tmp_path, monkeypatch, capsys):
    def refuse(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    write_workload(tmp_path)
    assert train_here(tmp_path, "--model", "cfg.yaml", "--profile", "off", "--steps", "2") == 0
    assert "runs/cfg: its file system has no locks (Function not implemented)" in capsys.readouterr().err


WRITES = """
import pathlib, sys
from gpudoc.train.state.run_dir import Run, lock_run
run = Run(pathlib.Path(sys.argv[1]))
lock = lock_run(run)
(run.checkpoints / "step-9.tmp-1").mkdir(parents=True)
print("writing", flush=True)
sys.stdin.read()
"""


def test_what_a_run_that_lives_is_writing_is_left_to_it(tmp_path):
    begun(tmp_path / "r")
    command = [sys.executable, "-c", WRITES, str(tmp_path / "r")]
    with subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout.readline() == "writing\n"
        with pytest.raises(GpudocError, match="in use by process"):
            choose("cfg", None, str(tmp_path / "r"), FIXED, 9)
        assert (tmp_path / "r/checkpoints/step-9.tmp-1").is_dir()
        writer.communicate()
    choose("cfg", None, str(tmp_path / "r"), FIXED, 9)
    assert not (tmp_path / "r/checkpoints/step-9.tmp-1").exists()


NAMES = (
    "r$(touch pwned)",
    "r; touch pwned; #",
    "`touch pwned`",
    "-rf",
    "a b",
    "r\n  try: touch pwned",
    "\x1b]0;pwned\x07'\x7f",
    "\x9b8m\u202e",
)


@pytest.mark.parametrize("name", NAMES)
def test_what_to_type_names_a_run_and_runs_nothing_in_its_name(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    place = Path("runs") / name
    begun(place, fixed={**FIXED, "seed": 1}, status="stopped")
    refusals = (
        lambda: choose("cfg", place, "never", FIXED, 9),
        lambda: choose("cfg", place, "auto", FIXED, 9),
        lambda: choose("cfg", None, f"{place}-none", FIXED, 9),
        lambda: lock_run(Run(place / "metrics.jsonl")),
        lambda: choose("cfg", Path(name), "never", FIXED, 9),
    )
    begun(Path(name))
    for refuse in refusals:
        with pytest.raises(GpudocError) as refused:
            refuse()
        assert refused.value.message.isprintable()
        assert refused.value.hint.isprintable()
        typed = refused.value.hint.rpartition("--run-dir than ")[2].removeprefix("runs here: ")
        if typed in ("--run-dir DIR", "change it back, or start again: --resume never --run-dir runs/NEW"):
            continue
        # as an argument of --run-dir, and to a program that takes options
        said = subprocess.run(
            ["bash", "-c", f"printf '%s\\0' {typed}; ls -d {typed}"], capture_output=True, timeout=60, check=True
        )
        named = os.fsdecode(said.stdout.partition(b"\0")[0])
        assert Path(named).is_dir()
        assert not Path("pwned").exists()


def test_what_a_run_in_use_says_of_its_holder_is_one_line(tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / ".lock").write_text("process 1\n  try: touch pwned\n\x1b]0;pwned\x07")
    locks = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX)"
    holds = f"{locks}; print(flush=True); sys.stdin.read()"
    line = [sys.executable, "-c", holds, str(tmp_path / "r" / ".lock")]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "\n"
        with pytest.raises(GpudocError, match="in use by process 1") as refused:
            lock_run(Run(tmp_path / "r"))
        holder.communicate()
    assert refused.value.message.isprintable()
