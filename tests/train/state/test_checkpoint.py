"""A checkpoint is whole or it is not used, whatever happened to the writer or to the disk."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

from gpudoc.train.state import checkpoint
from gpudoc.train.state.checkpoint import Content
from tests.train.support import ROOT, train_here, write_workload

PLACES = [
    "before model.safetensors",
    "inside model.safetensors",
    "after model.safetensors",
    "inside optimizer.pt",
    "inside rng-rank0.pt",
    "inside state.json",
    "before manifest.json",
    "inside manifest.json",
    "before rename",
    "between",
    "after rename",
    "after pruning",
]


def content(step: int) -> Content:
    return Content(
        step=step,
        model={"weight": torch.full((100,), float(step))},
        optimizer={"state": {0: {"step": torch.tensor(float(step))}}, "param_groups": [{"lr": 0.1}]},
        state={"schema": "gpudoc.state.v1", "step": step},
        rng={0: {"torch": torch.get_rng_state()}},
    )


def keeping_ruins():
    """As after SIGKILL, the writer tidies nothing up."""
    return mock.patch.object(checkpoint.shutil, "rmtree", return_value=None)


# each is a process that imports torch: for every save one while a file is written and the two next to the rename
EVERY_SAVE = ("inside model.safetensors", "before rename", "after rename")


@pytest.mark.parametrize(
    "place", [place if place in EVERY_SAVE else pytest.param(place, marks=pytest.mark.slow) for place in PLACES]
)
def test_kill_9_inside_the_writer_leaves_the_older_or_the_whole_new_one(tmp_path, place):
    checkpoint.write(tmp_path, content(1))
    program = (
        "import os, signal, sys, pathlib\n"
        "from tests.train.state.test_checkpoint import content\n"
        "from gpudoc.train.state import checkpoint\n"
        f"die = lambda at: os.kill(os.getpid(), signal.SIGKILL) if at == {place!r} else None\n"
        "checkpoint.write(pathlib.Path(sys.argv[1]), content(2), keep=(1,), fault=die)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program, tmp_path], env=environment, timeout=100)
    assert done.returncode == -signal.SIGKILL
    checkpoint.settle_ruins(tmp_path)
    found, bad = checkpoint.newest_good(tmp_path)
    assert not bad
    # the manifest is the last file: with it the new one is whole, under whatever name
    whole = PLACES[PLACES.index("inside manifest.json") :]
    assert found.name == ("step-2" if place in whole else "step-1")
    assert not checkpoint.ruins(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir())[0].startswith("step-")


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.pt", "rng-rank0.pt", "state.json", "manifest.json"])
@pytest.mark.parametrize("harm", ["truncated", "flipped", "missing", "empty"])
def test_a_damaged_file_is_found_and_named_and_the_older_checkpoint_used(tmp_path, file, harm):
    checkpoint.write(tmp_path, content(1))
    path = checkpoint.write(tmp_path, content(2), keep=(1,)) / file
    data = bytearray(path.read_bytes())
    match harm:
        case "truncated":
            path.write_bytes(data[:-1])
        case "flipped":
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
    found, bad = checkpoint.newest_good(tmp_path)
    assert found.name == "step-1"
    assert [entry.path.name for entry in bad] == ["step-2"]
    assert file in bad[0].reason or file == "manifest.json"


@pytest.mark.parametrize("place", PLACES[:-2])
def test_a_full_disk_leaves_no_ruin_and_the_older_checkpoint(tmp_path, place):
    checkpoint.write(tmp_path, content(1))

    def full(at):
        if at == place:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left"):
        checkpoint.write(tmp_path, content(2), keep=(), fault=full)
    assert [p.name for p in tmp_path.iterdir()] == ["step-1"]


def test_only_what_is_kept_stays(tmp_path):
    for step in (1, 2, 3, 4):
        checkpoint.write(tmp_path, content(step), keep=(step - 1, 1))
    assert [step for step, _ in checkpoint.found_in(tmp_path)] == [4, 3, 1]


def test_the_same_step_can_be_saved_again(tmp_path):
    checkpoint.write(tmp_path, content(1))
    checkpoint.write(tmp_path, content(1))
    assert checkpoint.verify(tmp_path / "step-1") is None


@pytest.mark.parametrize("place", ["inside model.safetensors", "before rename", "between", "after rename"])
def test_the_only_checkpoint_survives_a_kill_while_its_step_is_saved_again(tmp_path, place):
    """With keep=1 there is no other: at each moment the old one or the new one is whole."""
    checkpoint.write(tmp_path, content(1), keep=())

    class KilledError(BaseException):
        pass

    def die(at):
        if at == place:
            # what a kill leaves: nothing after it runs, not even a handler
            raise KilledError

    for _ in range(2):
        with pytest.raises(KilledError), keeping_ruins():
            checkpoint.write(tmp_path, content(1), keep=(), fault=die)
        checkpoint.settle_ruins(tmp_path)
        found, bad = checkpoint.newest_good(tmp_path)
        assert (found, bad) == (tmp_path / "step-1", [])
        assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_a_rename_that_fails_puts_the_old_one_back(tmp_path, monkeypatch):
    checkpoint.write(tmp_path, content(1))
    rename = Path.rename

    def refuse_new(path, target):
        if not path.name.endswith("replaced") and ".tmp-" in path.name:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse_new)
    with pytest.raises(OSError, match="quota"):
        checkpoint.write(tmp_path, content(1))
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]
    assert checkpoint.verify(tmp_path / "step-1") is None


def test_a_ruin_that_is_not_whole_or_that_is_not_needed_is_removed(tmp_path):
    whole = checkpoint.write(tmp_path, content(1))
    shutil.copytree(whole, tmp_path / "step-1.tmp-77")
    torn = shutil.copytree(whole, tmp_path / "step-2.tmp-77")
    (torn / "optimizer.pt").write_bytes(b"")
    shutil.copytree(whole, tmp_path / "step-x.tmp-77")
    checkpoint.settle_ruins(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_a_foreign_manifest_is_no_checkpoint(tmp_path):
    path = checkpoint.write(tmp_path, content(1))
    (path / "manifest.json").write_text('{"schema": "somebody.else", "files": {}}')
    assert "is not one of" in checkpoint.verify(path)


def test_a_run_says_which_file_is_bad_and_goes_on_from_the_older_one(tmp_path, capsys):
    write_workload(tmp_path)
    line = ("--model", "cfg.yaml", "--profile", "off", "--set", "checkpoint_every=4")
    assert train_here(tmp_path, *line, "--steps", "8") == 0
    weights = tmp_path / "runs/cfg/checkpoints/step-8/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    assert train_here(tmp_path, *line, "--steps", "12", "--resume", "runs/cfg") == 0
    told = capsys.readouterr().err
    assert "step-8 is not used: model.safetensors" in told
    assert "continues from step-4" in told


def test_a_run_without_any_whole_checkpoint_is_refused(tmp_path, capsys):
    write_workload(tmp_path)
    line = ("--model", "cfg.yaml", "--profile", "off")
    assert train_here(tmp_path, *line, "--steps", "2") == 0
    (tmp_path / "runs/cfg/checkpoints/step-2/optimizer.pt").unlink()
    assert train_here(tmp_path, *line, "--steps", "4", "--resume", "runs/cfg") == 2
    assert "no checkpoint is complete: step-2: optimizer.pt: missing" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["/etc/hostname", "../step-1/state.json", "dcp/../../x"])
def test_a_manifest_that_names_a_file_elsewhere_is_refused(tmp_path, name):
    path = checkpoint.write(tmp_path, content(1))
    manifest = json.loads((path / checkpoint.MANIFEST).read_text())
    manifest["files"][name] = manifest["files"]["state.json"]
    (path / checkpoint.MANIFEST).write_text(json.dumps(manifest))
    assert checkpoint.verify(path) == f"manifest.json names a file elsewhere: {name}"
