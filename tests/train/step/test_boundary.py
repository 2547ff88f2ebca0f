"""Between steps: evaluation, best and last checkpoint, early stop, and a disk that is full."""

from __future__ import annotations

import json
import threading

import pytest

from gpudoc.train.data.feed import DirectFeed
from gpudoc.train.state import checkpoint, writer
from gpudoc.train.step import boundary
from gpudoc.train.step.boundary import NO_ROOM, Boundary
from gpudoc.train.step.step import Stepper
from tests.train.support import metrics, summary, train, train_here, write_workload

LIMIT = "600MiB"
LINE = ("--model", "cfg.yaml", "--profile", "off", "--no-preflight")


def steps_in(run):
    return [step for step, _ in checkpoint.found_in(run / "checkpoints")]


def test_the_best_stays_beside_the_last_ones(tmp_path):
    """The learning rate is so high that later evaluations are worse."""
    write_workload(tmp_path, evaluated=True, eval_every=2, checkpoint_every=2, keep=1, epochs=2)
    assert train_here(tmp_path, *LINE, "--set", "lr=0.5") == 0
    run = tmp_path / "runs/cfg"
    best = summary(run)["best"]["step"]
    evaluations = {row["step"]: row["eval"]["loss"] for row in metrics(run) if "eval" in row}
    assert evaluations[best] == min(evaluations.values())
    assert set(steps_in(run)) == {16, best}


def test_early_stop_ends_after_evaluations_without_gain(tmp_path, capsys):
    write_workload(tmp_path, evaluated=True, eval_every=1, early_stop=3, epochs=50)
    assert train_here(tmp_path, *LINE, "--set", "lr=5") == 0
    found = summary(tmp_path / "runs/cfg")
    assert found["steps"] < 400
    assert found["steps"] - found["best"]["step"] == 3
    assert "early stop after step" in capsys.readouterr().err


def test_evaluation_changes_nothing_in_training(tmp_path):
    write_workload(tmp_path, evaluated=True, model={"dropout": 0.3, "norm": True}, data={"draw": "torch"}, log_every=1)
    assert train_here(tmp_path, *LINE, "--run-dir", "often", "--set", "eval_every=1") == 0
    assert train_here(tmp_path, *LINE, "--run-dir", "once") == 0
    losses = [[row["loss"] for row in metrics(tmp_path / run) if "loss" in row] for run in ("often", "once")]
    assert losses[0] == losses[1]
    manifests = [
        json.loads((tmp_path / run / "checkpoints/step-8/manifest.json").read_text())["files"]
        for run in ("often", "once")
    ]
    assert manifests[0]["model.safetensors"] == manifests[1]["model.safetensors"]


def test_a_full_disk_in_the_middle_is_said_and_the_run_goes_on(tmp_path, capsys, monkeypatch):
    write_workload(tmp_path, checkpoint_every=2)
    real = checkpoint.write

    def full_at_first(folder, content, **options):
        if content.step <= 2:
            raise OSError(28, "No space left on device")
        return real(folder, content, **options)

    monkeypatch.setattr(writer, "write", full_at_first)
    assert train_here(tmp_path, *LINE) == 0
    assert "could not be written: No space left on device; training goes on" in capsys.readouterr().err
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
    assert "No space left on device; the newest whole one is step-2" in told
    assert checkpoint.newest_good(tmp_path / "runs/cfg/checkpoints")[0].name == "step-2"


@pytest.mark.slow
def test_without_memory_for_a_copy_steps_wait_for_the_checkpoint(tmp_path):
    """State of 192 MiB beside 64 MiB of gradients; a copy of it does not fit, the file of the weights does."""
    write_workload(
        tmp_path, model={"width": 4096, "hidden": 4096}, data={"width": 4096, "count": 24}, checkpoint_every=2
    )
    line = (*LINE, "--memory-limit", LIMIT, "--set", "allocator=exact", "--set", "rescue=false", "--steps", "6")
    done = train(tmp_path, *line)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(NO_ROOM) == 1
    run = tmp_path / "runs/cfg"
    assert steps_in(run) == [6, 4]
    assert all(checkpoint.verify(path) is None for _, path in checkpoint.found_in(run / "checkpoints"))
    free = train(tmp_path, *LINE, "--run-dir", "free", "--steps", "6")
    assert NO_ROOM not in free.stderr
    files = [
        json.loads((folder / "checkpoints/step-6/manifest.json").read_text())["files"]["model.safetensors"]
        for folder in (run, tmp_path / "free")
    ]
    assert files[0] == files[1]


def test_gradients_give_their_memory_back_before_evaluation_and_checkpoints(tmp_path, monkeypatch):
    write_workload(tmp_path, evaluated=True, eval_every=2, checkpoint_every=3, log_every=1)
    seen = []
    for name, real in (("capture", boundary.capture), ("evaluate", boundary.evaluate)):

        def looked(first, *rest, real=real, **options):
            parts = getattr(first, "parts", first)
            seen.append([p.grad for p in parts.model.parameters()])
            return real(first, *rest, **options)

        monkeypatch.setattr(boundary, name, looked)
    assert train_here(tmp_path, *LINE) == 0
    assert len(seen) > 5
    assert all(gradient is None for gradients in seen for gradient in gradients)
    assert all(row["grad_norm"] > 0 for row in metrics(tmp_path / "runs/cfg") if "grad_norm" in row)


def test_a_copy_that_would_not_fit_beside_the_highest_step_is_not_begun(tmp_path, capsys, monkeypatch):
    """Without a single failure: a limit leaves so little that an attempt would fail, or make a step fail."""
    write_workload(tmp_path, checkpoint_every=2)
    taken, real = [], boundary.capture

    def seen(stepper, progress, constants, random, staging, **options):
        taken.append(staging.in_place)
        return real(stepper, progress, constants, random, staging, **options)

    monkeypatch.setattr(boundary, "capture", seen)
    for room, in_place in ((None, False), (1 << 30, False), (17 << 20, False), (16 << 20, True)):
        monkeypatch.setattr(boundary, "room_bytes", lambda room=room: room)
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
    settled = Boundary._save
    monkeypatch.setattr(Boundary, "_save", lambda self: settled(self) and (writing.wait(60) or True))
    assert train_here(tmp_path, *LINE, "--run-dir", "short") == 0
    assert failed
    assert capsys.readouterr().err.count(NO_ROOM) == 1
    assert summary(tmp_path / "short")["rescues"] == []
    manifests = [
        json.loads((tmp_path / run / "checkpoints/step-8/manifest.json").read_text())["files"]["model.safetensors"]
        for run in ("plain", "short")
    ]
    assert manifests[0] == manifests[1]


def test_an_evaluation_that_is_not_finite_is_never_the_best_and_breaks_nothing(tmp_path, capsys):
    config = write_workload(tmp_path, evaluated=True, eval_every=2, early_stop=2, epochs=2)
    written = json.loads(config.read_text())
    written["data"]["eval"]["args"]["bad_from"] = 20
    config.write_text(json.dumps(written))
    assert train_here(tmp_path, *LINE, "--plain", "--html", "page.html") == 0
    out, err = capsys.readouterr()
    assert "eval loss that is not finite after step 4" in out
    assert "early stop after step 4: 2 evaluations without gain; none was finite" in err
    assert "(best)" not in err
    found = summary(tmp_path / "runs/cfg")
    assert found["best"] is None
    assert found["evaluation"] == {"step": 4, "loss": None}
    assert "loss on the eval set that is not finite" in (tmp_path / "page.html").read_text("utf-8")
