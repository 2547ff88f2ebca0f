"""On a GPU a training step waits for nothing between two log points: how often the host waits, counted step by step."""

from __future__ import annotations

import json

import pytest

from tests.train.step.test_sequence import write_config

pytestmark = pytest.mark.standin

STEPS, LOG_EVERY = 30, 10
# the first updates are guarded (sequence.py): each looks whether it was finite
PROBATION = 3
# how often each step waited; torch itself says so of what it does in C++, the rest is counted where Python asks
CODE = """
import collections, json, pathlib, sys, warnings
import torch
from gpudoc.train.request import TrainRequest
from gpudoc.train.start.build import build
from gpudoc.train.stop import Stop

sys.path.insert(0, str(pathlib.Path.cwd()))
request = TrainRequest(
    model="cfg.yaml", profile="off", device="cuda", preflight=False, run_dir=pathlib.Path("run"), resume="never",
    flags={{"log_every": {log_every}, "steps": {steps}, "checkpoint_every": 0, **json.loads({flags!r})}},
)
building = build(request, Stop())
try:
    while True:
        next(building)
except StopIteration as end:
    job, lock = end.value

waits = collections.Counter()

def counted(owner, name):
    real = getattr(owner, name)

    def call(*args, **kwargs):
        waits[job.course.progress.step] += 1
        return real(*args, **kwargs)

    setattr(owner, name, call)

counted(torch.cuda, "synchronize")
counted(torch.cuda.Event, "synchronize")
counted(torch.cuda.Stream, "synchronize")
told = warnings.showwarning

def show(message, category, *rest):
    if "synchronizing CUDA operation" in str(message):
        waits[job.course.progress.step] += 1
    else:
        told(message, category, *rest)

warnings.showwarning = show
warnings.simplefilter("always")
torch.cuda.set_sync_debug_mode("warn")
for event in job.loop.events():
    pass
print(json.dumps([waits[step] for step in range({steps})]))
"""


@pytest.fixture
def waits(standin):
    """How often each of the steps waited for the GPU, under flags and changes of the config."""

    def waits(flags, changes):
        gpus = standin()
        write_config(gpus.home, changes)
        done = gpus.python(CODE.format(log_every=LOG_EVERY, steps=STEPS, flags=json.dumps(flags)))
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.strip().splitlines()[-1])

    return waits


def between(counts):
    """Those of the steps that are neither guarded nor follow a log point, whose waits count with the next step."""
    return {count for step, count in enumerate(counts) if step >= PROBATION and step % LOG_EVERY}


@pytest.mark.parametrize(
    ("flags", "changes"),
    [
        ({}, {}),
        ({"precision": "bf16"}, {}),
        ({"precision": "fp16"}, {}),
        ({}, {"train": {"grad_clip": 0.5}}),
    ],
    ids=["fp32", "bf16", "fp16", "clip"],
)
def test_between_log_points_no_step_waits_for_the_device(waits, flags, changes):
    counts = waits(flags, changes)
    assert between(counts) == {0}, counts
    assert all(counts[step] > 0 for step in range(LOG_EVERY, STEPS, LOG_EVERY)), counts
