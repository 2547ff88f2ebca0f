"""Checkpoints are written beside the training, one at a time, and a failure comes back as an outcome."""

import subprocess
import sys
import threading
from dataclasses import replace

import pytest
import torch

from gpudoc.train.events import Saved
from gpudoc.train.state.checkpoint import Content, newest_good, verify
from gpudoc.train.state.writer import Writer
from tests.train.support import environment


def content(step):
    return Content(step=step, model={"w": torch.ones(3)}, optimizer={}, state={"step": step}, rng={})


def test_a_checkpoint_is_written_beside_and_collected_once(tmp_path):
    writer = Writer(tmp_path)
    assert writer.collect() is None
    writer.start(content(3), (3,))
    saved = writer.collect(wait=True)
    assert isinstance(saved, Saved)
    assert (saved.step, saved.num_bytes > 0) == (3, True)
    assert newest_good(tmp_path)[0] == saved.path
    assert writer.collect() is None
    assert not writer.busy
    assert writer.last_seconds == saved.seconds


def test_training_goes_on_while_the_disk_is_slow(tmp_path):
    gate = threading.Event()

    def slow(*_):
        gate.wait(30)

    writer = Writer(tmp_path, fault=slow)
    writer.start(content(1), (1,))
    assert writer.busy
    assert writer.collect() is None
    with pytest.raises(RuntimeError, match="still being written"):
        writer.start(content(2), (2,))
    gate.set()
    assert isinstance(writer.collect(wait=True), Saved)


def test_a_full_disk_is_an_outcome_and_leaves_no_ruin(tmp_path):
    def full(*_):
        raise OSError(28, "No space left on device")

    writer = Writer(tmp_path, fault=full)
    writer.start(content(1), (1,))
    outcome = writer.collect(wait=True)
    assert isinstance(outcome, OSError)
    assert outcome.errno == 28
    assert not list(tmp_path.iterdir())
    assert writer.last_seconds == 0


def test_copies_that_are_on_their_way_are_waited_for_before_anything_is_written(tmp_path):
    order = []

    class Copying:
        def wait(self):
            order.append("copied")

    writer = Writer(tmp_path, fault=order.append)
    writer.start(replace(content(1), copying=Copying()), (1,))
    assert isinstance(writer.collect(wait=True), Saved)
    assert order[:2] == ["copied", "before model.safetensors"]


def test_settling_waits_and_leaves_the_outcome(tmp_path):
    writing = Writer(tmp_path)
    writing.start(content(3), ())
    writing.settle()
    assert verify(tmp_path / "step-3") is None
    assert writing.busy
    assert isinstance(writing.collect(), Saved)


def test_memory_that_runs_out_while_writing_is_an_outcome_that_says_so(tmp_path):
    def short(point):
        raise MemoryError

    writing = Writer(tmp_path, short)
    writing.start(content(3), ())
    outcome = writing.collect(wait=True)
    assert isinstance(outcome, OSError)
    assert isinstance(outcome.__cause__, MemoryError)


def test_not_beside_the_steps_it_is_written_when_start_returns_and_by_no_thread(tmp_path):
    names = set()
    writing = Writer(tmp_path, lambda point: names.add(threading.current_thread().name))
    writing.start(content(3), (), beside=False)
    assert names == {threading.current_thread().name}
    assert verify(tmp_path / "step-3") is None
    assert writing.busy
    assert isinstance(writing.collect(), Saved)
    assert not writing.busy


NO_STACK = """
import resource, sys, threading, torch
from pathlib import Path
from gpudoc.process import memory
from gpudoc.train.state.checkpoint import Content
from gpudoc.train.state.writer import Writer
def content(step):
    return Content(step=step, model={"w": torch.ones(3)}, optimizer={}, state={}, rng={})
# what the first checkpoint loads is loaded before the limit
Writer(Path(sys.argv[1])).start(content(1), (), beside=False)
threading.stack_size(64 << 20)
held = memory.read_process_memory().data_bytes
resource.setrlimit(resource.RLIMIT_DATA, (held + (32 << 20), held + (32 << 20)))
try:
    threading.Thread(target=print).start()
    sys.exit("the limit does not hold")
except RuntimeError:
    pass
writer = Writer(Path(sys.argv[1]))
writer.start(content(2), ())
print(type(writer.collect(wait=True)).__name__)
"""


def test_without_memory_for_a_thread_it_is_written_all_the_same(tmp_path):
    command = [sys.executable, "-c", NO_STACK, str(tmp_path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.strip() == "Saved", done.stderr
    assert verify(tmp_path / "step-2") is None
