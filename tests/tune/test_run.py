"""The whole search as a person starts it: a profile at the end, nothing twice after a kill, nothing left behind."""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import time

import psutil
import pytest
import yaml

from gpudoc.tune import run
from gpudoc.tune.options import SearchOptions
from tests.tune.planted import write_workload

TUNE = ("tune", "--budget", "45s", "--memory-limit", "640MiB", "--only", "batch,speed", "--out", "profile.yaml")


def start(folder, *arguments, command=TUNE, **kwargs):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_DATA_HOME": str(folder / "data")}
    line = [sys.executable, "-m", "tests.tune.quiet", *command, "--model", "cfg.yaml", "--device", "cpu", *arguments]
    pipe = subprocess.PIPE
    environment["PYTHONPATH"] = os.pathsep.join([os.getcwd(), environment.get("PYTHONPATH", "")])  # noqa: PTH109
    streams = {"stdout": pipe, "stderr": pipe, "text": True}
    return subprocess.Popen(line, cwd=folder, env=environment, **{**streams, **kwargs})


def finish(process, code=0):
    out, err = process.communicate(timeout=280)
    assert process.returncode == code, err
    return out, err


def journal_of(folder):
    (path,) = (folder / "data" / "gpudoc" / "journals").glob("*.jsonl")
    return path


def learned(folder):
    """What a profile says besides when it was made."""
    profile = yaml.safe_load((folder / "profile.yaml").read_text())
    for part in profile["evidence"]["parts"]:
        part.pop("at")
    return {key: value for key, value in profile.items() if key != "made"}


def tuned_in(folder, *more):
    write_workload(folder, net={"width": 4096}, data={"count": 30_000})
    out, err = finish(start(folder, "--json", "--html", "page.html", *more))
    return folder, json.loads(out), err


@pytest.fixture(scope="module")
def tuned_briefly(tmp_path_factory):
    """A search that has found a batch and compared some; what takes longer needs no more of it."""
    return tuned_in(tmp_path_factory.mktemp("briefly"), "--budget", "40s")


@pytest.mark.slow
def test_the_document_holds_the_profile_that_was_written(tuned_briefly):
    folder, document, err = tuned_briefly
    assert document["schema"] == "gpudoc.tune.v1"
    written = yaml.safe_load((folder / "profile.yaml").read_text())
    assert document["profile"] == json.loads(json.dumps(written))
    evidence = written["evidence"]
    assert evidence["memory_limit_bytes"] == 640 * 2**20
    assert written["hardware"]["memory_bytes"] == 640 * 2**20
    assert evidence["speedup_over_default"] >= 1
    assert 1 <= written["settings"]["micro_batch"] <= evidence["largest_batch"] < 30_000
    assert any(sentence.startswith("largest batch") for sentence in written["why"])
    assert "your default, to compare with: batch" in err
    assert "the search imported torch" not in err
    assert err.splitlines()[-1] == "wrote page.html"


@pytest.mark.slow
@pytest.mark.parametrize("switch", ["", "SSE41"])
def test_trials_are_taken_over_only_under_the_same_instruction_set(tuned_briefly, tmp_path, monkeypatch, switch):
    folder = tmp_path / "copy"
    shutil.copytree(tuned_briefly[0], folder)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", switch)
    process = start(folder, "--budget", "40s")
    told = next(line for line in process.stderr if "your default" in line or "continuing with" in line)
    process.kill()
    process.communicate()
    assert ("continuing with" in told) == (not switch)


@pytest.mark.slow
def test_kill_nine_leaves_no_process_and_who_goes_on_repeats_no_trial_and_learns_the_same(tmp_path):
    write_workload(tmp_path, net={"width": 4096}, data={"count": 30_000})
    process = start(tmp_path)
    for line in process.stderr:
        if "planning" in line:
            break
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
    path = journal_of(tmp_path)
    done = len(path.read_text().splitlines()) - 1
    assert done >= 1
    _, err = finish(start(tmp_path))
    assert f"continuing with {done} trial" in err
    # as after a kill in the middle, and after the last record
    whole = path.read_text().splitlines(keepends=True)
    half = whole[: len(whole) // 2]
    path.write_text("".join(half))
    finish(start(tmp_path))
    whole = path.read_text().splitlines(keepends=True)
    assert whole[: len(half)] == half
    assert len(whole) > len(half)
    requests = [json.dumps(json.loads(line)["request"], sort_keys=True) for line in whole[1:]]
    assert len(set(requests)) == len(requests)
    before = learned(tmp_path)
    finish(start(tmp_path))
    assert path.read_text().splitlines(keepends=True) == whole
    assert learned(tmp_path) == before


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=["Ctrl+C", "SIGTERM"]
)
def test_a_signal_to_stop_writes_the_best_so_far(tmp_path, number):
    write_workload(tmp_path, net={"width": 4096}, data={"count": 30_000})
    process = start(tmp_path, "--budget", "60s")
    for line in process.stderr:
        if "default batch" in line:
            break
    time.sleep(0.3)
    process.send_signal(number)
    out, _ = finish(process, code=130)
    assert "Interrupted; this is the best so far. " in out
    assert yaml.safe_load((tmp_path / "profile.yaml").read_text())["settings"]["micro_batch"] >= 1


@pytest.mark.slow
def test_a_lost_connection_writes_the_best_so_far_and_what_is_said_then_is_no_error(tmp_path):
    write_workload(tmp_path, net={"width": 4096}, data={"count": 30_000})
    ours, theirs = pty.openpty()

    def own_terminal():
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    process = start(tmp_path, "--budget", "60s", preexec_fn=own_terminal, **streams)
    os.close(theirs)
    seen = b""
    while b"data that is ready" not in seen:
        seen += os.read(ours, 4096)
    # the default was timed by then; the kernel hangs up, as when an ssh connection is lost
    os.close(ours)
    assert process.wait() == 130
    assert yaml.safe_load((tmp_path / "profile.yaml").read_text())["settings"]["micro_batch"] >= 1


@pytest.mark.parametrize(
    ("plant", "arguments", "code", "says"),
    [
        pytest.param({"fault": "raise", "at": 1}, (), 1, "planted: batch 8 is refused", marks=pytest.mark.slow),
        pytest.param({"data": {"lengths": True}, "collate": False}, (), 2, "collate", marks=pytest.mark.slow),
        pytest.param(
            {},
            ("--memory-limit", "20MiB"),
            1,
            "is less than Python, torch and the data need",
            marks=pytest.mark.slow,
        ),
        ({}, ("--out", "/proc/profile.yaml"), 2, "cannot be written"),
    ],
    ids=["fails on its own", "no collate", "below the baseline", "unwritable"],
)
def test_bad_input(tmp_path, plant, arguments, code, says):
    keeps_collate = plant.pop("collate", True)
    path = write_workload(tmp_path, **plant)
    if not keeps_collate:
        config = yaml.safe_load(path.read_text())
        del config["data"]["collate"]
        path.write_text(yaml.safe_dump(config))
    _, err = finish(start(tmp_path, *arguments), code=code)
    assert says in err
    assert "Traceback" not in err.replace("Traceback (most recent call last) of your code", "")
    assert not (tmp_path / "profile.yaml").exists()


@pytest.mark.slow
def test_nothing_fits_says_by_how_much(tmp_path):
    write_workload(tmp_path, net={"width": 4096, "hidden": 20_000}, data={"count": 100})
    _, err = finish(start(tmp_path, "--memory-limit", "700MiB"), code=1)
    assert "nothing fits in 700 MiB" in err
    assert "bytes more" in err
    assert "--memory-limit" in err


@pytest.mark.slow
def test_a_global_batch_in_the_config_caps_the_search(tmp_path):
    write_workload(tmp_path, global_batch=16)
    finish(start(tmp_path))
    profile = learned(tmp_path)
    assert profile["evidence"]["largest_batch"] == 16
    assert max(trial["batch"] for trial in profile["evidence"]["trials"]) == 16


@pytest.mark.slow
def test_what_does_not_fit_is_recomputed_and_training_does_the_same_under_the_same_limit(tmp_path):
    write_workload(tmp_path, net={"depth": 20, "spread": 32_768}, data={"count": 64}, reference_batch=1)
    limit = ("--memory-limit", "560MiB")
    _, err = finish(start(tmp_path, *limit, "--budget", "4m"))
    assert re.search("batch 1 does not fit: trying (selective )?activation checkpointing", err)
    profile = learned(tmp_path)
    # every block where the plan takes too long to say that a part is enough
    recomputed = profile["settings"]["activation_checkpointing"]
    shown = {True: "on"}.get(recomputed, recomputed)
    assert f"activation_checkpointing {shown}: batch 1 does not fit in 560 MiB without" in profile["why"]
    arguments = ("train", "--profile", "profile.yaml", "--steps", "2", "--run-dir", "run", "--no-preflight", *limit)
    finish(start(tmp_path, command=arguments))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["steps"], summary["rescues"]) == (2, [])
    used = yaml.safe_load((tmp_path / "run" / "profile.yaml").read_text())
    assert used["settings"]["activation_checkpointing"] == recomputed


@pytest.mark.slow
def test_a_data_set_smaller_than_the_batch_caps_everything(tmp_path):
    write_workload(tmp_path, data={"count": 5})
    finish(start(tmp_path))
    profile = learned(tmp_path)
    assert profile["evidence"]["largest_batch"] == 5
    assert profile["settings"]["micro_batch"] <= 5


class LaunchedError(Exception):
    pass


@pytest.mark.parametrize(("goal", "expected"), [("largest", ["default", "exact"]), ("throughput", ["default"])])
def test_the_processes_of_both_allocators_start_together_where_both_are_needed(tmp_path, monkeypatch, goal, expected):
    def launch(source, variants, deadline):
        assert [variant.allocator for variant in variants] == expected
        raise LaunchedError

    monkeypatch.setattr(run, "Launcher", launch)
    options = SearchOptions(model="quickstart", device="cpu", goal=goal, out=tmp_path / "profile.yaml")
    with pytest.raises(LaunchedError):
        run.run(options)
