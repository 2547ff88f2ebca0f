"""Checkpoints beside the steps: a disk that is full, and memory that is short."""

from __future__ import annotations

import json
import threading

import pytest

from gpudoc.train.data.reader import DirectFeed
from gpudoc.train.loop import saving
from gpudoc.train.loop.saving import NO_ROOM, Saving
from gpudoc.train.state import checkpoint, writer
from gpudoc.train.step.step import Stepper
from tests.train.support import as_in_a_process, summary, train, train_here, write_workload

LIMIT = "600MiB"
LINE = ("--model", "cfg.yaml", "--profile", "off", "--no-preflight")


def steps_in(run):
    return [step for step, _ in checkpoint.found_in(run / "checkpoints")]


def test_a_full_disk_in_the_middle_is_said_and_the_run_goes_on(tmp_path, capsys, monkeypatch):
    write_workload(tmp_path, checkpoint_every=2)
    real = checkpoint.write

    def full_at_first(folder, content, **options):
        if content.step <= 2:
            raise OSError(28, "No space left on device")
        return real(folder, content, **options)

    monkeypatch.setattr(writer, "write", full_at_first)
    assert train_here(tmp_path, *LINE) == 0
    assert "could not be written: No space left on device; training continues" in capsys.readouterr().err
    assert steps_in(tmp_path / "runs/cfg")[0] == 8


def test_a_full_disk_at_the_end_is_a_failure_that_names_the_newest_whole_one(tmp_path, capsys, monkeypatch):
    write_workload(tmp_path, checkpoint_every=2)
    real = checkpoint.write

    def full_later(folder, content, **options):
        if content.step > 2:
            raise OSError(28, "No space left on device")
        return real(folder, content, **options)

    monkeypatch.setattr(writer, "write", full_later)
    assert train_here(tmp_path, *LINE) == 1
    told = capsys.readouterr().err
    assert "No space left on device; the newest complete one is step-2" in told
    assert checkpoint.newest_good(tmp_path / "runs/cfg/checkpoints")[0].name == "step-2"


@pytest.mark.slow
def test_without_memory_for_a_copy_steps_wait_for_the_checkpoint(tmp_path, capsys):
    """State of 192 MiB beside 64 MiB of gradients; a copy of it does not fit, the file of the weights does."""
    write_workload(
        tmp_path, model={"width": 4096, "hidden": 4096}, data={"width": 4096, "count": 24}, checkpoint_every=2
    )
    line = (*LINE, "--memory-limit", LIMIT, "--set", "allocator=exact", "--set", "rescue=false", "--steps", "4")
    done = train(tmp_path, *line)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(NO_ROOM) == 1
    run = tmp_path / "runs/cfg"
    assert steps_in(run) == [4, 2]
    assert all(checkpoint.verify(path) is None for _, path in checkpoint.found_in(run / "checkpoints"))
    with as_in_a_process():
        assert train_here(tmp_path, *LINE, "--run-dir", "free", "--steps", "4") == 0
    assert NO_ROOM not in capsys.readouterr().err
    files = [
        json.loads((folder / "checkpoints/step-4/manifest.json").read_text())["files"]["model.safetensors"]
        for folder in (run, tmp_path / "free")
    ]
    assert files[0] == files[1]


def test_a_copy_that_would_not_fit_beside_the_highest_step_is_not_begun(tmp_path, capsys, monkeypatch):
    """Without a single failure: a limit leaves so little that an attempt would fail, or make a step fail."""
    write_workload(tmp_path, checkpoint_every=2)
    taken, real = [], saving.capture

    def seen(stepper, progress, constants, random, staging, **options):
        taken.append(staging.in_place)
        return real(stepper, progress, constants, random, staging, **options)

    monkeypatch.setattr(saving, "capture", seen)
    for room, in_place in ((None, False), (1 << 30, False), (17 << 20, False), (16 << 20, True)):
        monkeypatch.setattr(saving, "room_bytes", lambda room=room: room)
        taken.clear()
        assert train_here(tmp_path, *LINE, "--run-dir", f"run-{room}") == 0
        assert set(taken) == {in_place}
        assert capsys.readouterr().err.count(NO_ROOM) == in_place


def test_a_writer_that_lacks_memory_is_tried_again_in_turn(tmp_path, capsys, monkeypatch):
    write_workload(tmp_path, checkpoint_every=4)
    real, tries = checkpoint.write, []

    def short_at_first(folder, content, **options):
        tries.append(content.step)
        if len(tries) == 1:
            raise MemoryError
        return real(folder, content, **options)

    monkeypatch.setattr(writer, "write", short_at_first)
    assert train_here(tmp_path, *LINE) == 0
    assert capsys.readouterr().err.count(NO_ROOM) == 1
    assert tries[:2] in ([4, step] for step in range(5, 9))
    assert 8 in steps_in(tmp_path / "runs/cfg")


@pytest.mark.parametrize("place", [(Stepper, "backward"), (DirectFeed, "take")], ids=["step", "batch"])
def test_what_runs_out_beside_a_checkpoint_is_done_again_with_the_same_batch(tmp_path, capsys, monkeypatch, place):
    write_workload(tmp_path, model={"dropout": 0.3}, data={"draw": "torch"}, checkpoint_every=4)
    assert train_here(tmp_path, *LINE, "--run-dir", "plain") == 0
    assert NO_ROOM not in capsys.readouterr().err
    real_write, real = checkpoint.write, getattr(*place)
    writing, may_end, failed = threading.Event(), threading.Event(), []

    def slow(folder, content, **options):
        writing.set()
        assert may_end.wait(60)
        return real_write(folder, content, **options)

    def short_once(self, argument):
        if writing.is_set() and not failed:
            failed.append(True)
            may_end.set()
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return real(self, argument)

    monkeypatch.setattr(writer, "write", slow)
    monkeypatch.setattr(*place, short_once)
    # the writer must be inside the file when the next step begins
    settled = Saving.save
    monkeypatch.setattr(Saving, "save", lambda self: settled(self) or self.waits or writing.wait(60))
    assert train_here(tmp_path, *LINE, "--run-dir", "short") == 0
    assert failed
    assert capsys.readouterr().err.count(NO_ROOM) == 1
    assert summary(tmp_path / "short")["rescues"] == []
    manifests = [
        json.loads((tmp_path / run / "checkpoints/step-8/manifest.json").read_text())["files"]["model.safetensors"]
        for run in ("plain", "short")
    ]
    assert manifests[0] == manifests[1]
