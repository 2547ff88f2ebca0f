"""A checkpoint is whole or it is not used, whatever happened to the writer or to the disk."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

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
    checkpoint.remove_ruins(tmp_path)
    found, bad = checkpoint.newest_good(tmp_path)
    assert not bad
    assert found.name == ("step-2" if place in ("after rename", "after pruning") else "step-1")
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
    assert "goes on from step-4" in told


def test_a_run_without_any_whole_checkpoint_is_refused(tmp_path, capsys):
    write_workload(tmp_path)
    line = ("--model", "cfg.yaml", "--profile", "off")
    assert train_here(tmp_path, *line, "--steps", "2") == 0
    (tmp_path / "runs/cfg/checkpoints/step-2/optimizer.pt").unlink()
    assert train_here(tmp_path, *line, "--steps", "4", "--resume", "runs/cfg") == 2
    assert "no checkpoint is whole: step-2: optimizer.pt: missing" in capsys.readouterr().err
