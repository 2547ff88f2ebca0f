"""The command from start to end, as a process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.train.support import environment, metrics, summary, train, train_here, write_workload


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_workload(folder, evaluated=True, epochs=3, log_every=4, eval_every=8)
    done = train(folder, "--model", "cfg.yaml", "--profile", "off", "--json", "--html", "page.html")
    return folder, done


def test_it_learns_and_prints_one_document(finished):
    folder, done = finished
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == "gpudoc.train.v1"
    assert document["status"] == "finished"
    assert document["steps"] == 24
    assert document["samples"] == 3 * 96
    rows = [row for row in metrics(folder / "runs" / "cfg") if "loss" in row]
    assert rows[-1]["loss"] < 0.5 * rows[0]["loss"]
    assert document == summary(folder / "runs" / "cfg")


def test_the_run_directory_holds_what_the_contract_names(finished):
    folder, _ = finished
    run = folder / "runs" / "cfg"
    for name in ("config.yaml", "profile.yaml", "metrics.jsonl", "summary.json"):
        assert (run / name).is_file(), name
    assert sorted(p.name for p in (run / "checkpoints" / "step-24").iterdir()) == [
        "manifest.json",
        "model.safetensors",
        "optimizer.pt",
        "rng-rank0.pt",
        "state.json",
    ]


def test_a_logged_step_says_where_its_time_went(finished):
    folder, _ = finished
    row = next(row for row in metrics(folder / "runs" / "cfg") if "loss" in row)
    assert set(row) >= {"step", "samples", "loss", "lr", "samples_per_s", "seconds", "memory_peak_bytes", "grad_norm"}
    assert set(row["seconds"]) == {
        "data_wait",
        "transfer",
        "compute",
        "communicate",
        "host",
        "compile",
        "checkpoint",
        "evaluate",
        "other",
    }


def test_the_stages_are_listed(finished):
    folder, _ = finished
    stages = {stage["name"]: stage for stage in summary(folder / "runs" / "cfg")["stages"]}
    assert list(stages) == ["doctor", "tune", "train", "evaluate"]
    assert stages["train"]["memory_peak_bytes"] > 1 << 20
    assert stages["evaluate"]["status"] == "done"


def test_the_page_stands_alone(finished):
    folder, _ = finished
    text = (folder / "page.html").read_text()
    assert "<svg" in text
    assert "eval loss" in text


def test_a_finished_run_is_left_alone_and_the_next_gets_a_new_directory(finished):
    folder, _ = finished
    before = (folder / "runs" / "cfg" / "metrics.jsonl").read_text()
    assert train_here(folder, "--model", "cfg.yaml", "--profile", "off", "--steps", "2") == 0
    assert summary(folder / "runs" / "cfg-2")["steps"] == 2
    assert (folder / "runs" / "cfg" / "metrics.jsonl").read_text() == before


# what only Unix has; torch and other libraries keep theirs, so that only gpudoc's own reach for it shows
NOT_UNIX = """
import builtins, os, signal, sys
import torch, torch.optim, torch.utils.data, torch.distributed, psutil, rich, typer, yaml, numpy, subprocess
import multiprocessing.popen_fork
real = builtins.__import__
def guarded(name, globals=None, *rest, **named):
    own = str((globals or {}).get("__name__", "")).startswith("gpudoc")
    if own and name in ("resource", "fcntl", "termios", "pwd", "grp", "pty", "tty", "syslog"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return real(name, globals, *rest, **named)
builtins.__import__ = guarded
for name in ("fork", "killpg", "statvfs", "sched_getaffinity", "geteuid", "getloadavg"):
    delattr(os, name)
for name in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGKILL"):
    delattr(signal, name)
from gpudoc.cli.app import run
sys.exit(run(["train", "--help"]) or run(sys.argv[1:]))
"""


def test_it_helps_and_trains_where_what_only_unix_has_is_missing(tmp_path):
    write_workload(tmp_path)
    line = [sys.executable, "-c", NOT_UNIX, "train", "--model", "cfg.yaml", "--profile", "off", "--no-preflight"]
    line += ["--device", "cpu"]
    done = subprocess.run(line, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Example: gpudoc train" in done.stdout
    assert "Traceback" not in done.stderr
    assert summary(tmp_path / "runs" / "cfg")["status"] == "finished"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--set", "lerning_rate=1"), "no setting 'lerning_rate'"),
        (("--set", "log_evry=3"), "did you mean log_every?"),
        (("--set", "micro_batch=many"), "not a whole number"),
        (("--set", "rescue=perhaps"), "not true or false"),
        (("--set", "lr=-1"), "more than 0"),
        (("--set", "micro_batch=4", "--set", "accumulation=2", "--set", "global_batch=12"), "needs accumulation 3"),
        (("--set", "global_batch=1000"), "more than the 96 samples"),
        (("--precision", "fp16"), "fp16 does not train on a CPU"),
        (("--precision", "fp12"), "no such precision"),
        (("--memory-limit", "lots"), "not a size"),
        (("--memory-limit", "1MiB"), "already holds"),
        (("--profile", "nothing.yaml"), "no such profile"),
        (("--resume", "nowhere"), "no such run directory"),
        (("--device", "tpu"), "no such device"),
        (("--log-to", "carrier-pigeon"), "unknown"),
    ],
)
def test_a_mistake_is_said_with_its_way_out_and_nothing_is_written(tmp_path, arguments, said, capsys):
    write_workload(tmp_path)
    assert train_here(tmp_path, "--model", "cfg.yaml", "--profile", "off", *arguments) in (1, 2)
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told
    assert not list(tmp_path.glob("runs/*/checkpoints/step-*"))


HOARD = """
import torch

KEPT = []

def build_model():
    return Hoard()

class Hoard(torch.nn.Linear):
    'Takes all memory there is in its third step, and gives none of it back.'

    def __init__(self):
        super().__init__(8, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        while self.calls == 3:
            KEPT.append(bytearray(64 << 10))
        return super().forward(x)
"""


def test_a_run_that_ends_without_any_memory_left_still_says_so_and_writes_its_summary(tmp_path):
    config = write_workload(tmp_path)
    (tmp_path / "hoard.py").write_text(HOARD)
    config.write_text(config.read_text().replace("tiny_workload:build_model", "hoard:build_model"))
    line = ("--model", "cfg.yaml", "--profile", "off", "--no-preflight", "--memory-limit", "700MiB")
    done = train(tmp_path, *line, "--set", "rescue=false")
    assert done.returncode == 1, done.stderr
    assert "out of memory at step 2" in done.stderr
    assert "--resume" in done.stderr
    run = tmp_path / "runs" / "cfg"
    assert summary(run)["status"] == "failed"
    assert [path.name for path in run.glob("checkpoints/step-*")] == ["step-2"]
