"""A script that reads nothing of its GPU runs ahead of it; its speed and its waiting are the GPU's all the same."""

from __future__ import annotations

import json
import sys

import pytest

from gpudoc.script.hook import environment, read
from gpudoc.script.inside._gpudoc_inside.batches import GpuClock
from gpudoc.script.look import look_at, steady
from gpudoc.script.messages import HookOrder
from tests.script.scripts import EAGER

AHEAD = f"""{EAGER}
import json, sys, time, torch
from torch.utils.data import DataLoader, Dataset

cycles, late_s = int(sys.argv[1]), float(sys.argv[2])

class Rows(Dataset):
    def __len__(self): return 32 * 8
    def __getitem__(self, i):
        if i % 8 == 0:
            time.sleep(late_s)
        return torch.zeros(16)

model = torch.nn.Linear(16, 16).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
stepped = []

def step(x):
    x = x.cuda(non_blocking=True)
    torch.cuda._sleep(cycles)
    model(x).sum().backward()
    stepped.append(time.time())
    optimizer.step()
    optimizer.zero_grad()

step(torch.zeros(8, 16).pin_memory())
torch.cuda.synchronize()
began = time.perf_counter()
for x in DataLoader(Rows(), 8, pin_memory=True):
    step(x)
torch.cuda.synchronize()
print(json.dumps([(time.perf_counter() - began) / 32, stepped[0]]))
"""
# at the stand-in's 1980 MHz; by its virtual clock a second costs none, and what Python takes is little beside it
MS = 1_980_000
SECOND = 1000 * MS


def watched(gpus, order, *arguments):
    """(seconds of a step by the script's own clock, when its optimizer first stepped, what was seen of it)."""
    (gpus.home / "train.py").write_text(AHEAD)
    events = gpus.home / "events"
    events.mkdir()
    done = gpus.run(sys.executable, "train.py", *map(str, arguments), **environment(events, order, gpus.environment))
    assert done.returncode == 0, done.stderr
    (seen,) = read(events)
    assert not seen.asides
    return *json.loads(done.stdout), seen


@pytest.mark.standin
def test_a_look_sees_the_speed_of_a_script_with_a_wait_at_both_ends(standin):
    order = HookOrder(purpose="look", warm_steps=3, steps=24)
    own_s, _, seen = watched(standin(clock="virtual", memory="1G"), order, SECOND, 0)
    look = look_at([seen], warm_steps=3, start_s=0.0)
    assert look.step_s == pytest.approx(own_s, rel=0.03)
    assert look.samples_per_s == pytest.approx(8 / own_s, rel=0.03)
    assert seen.measured


@pytest.mark.standin
def test_what_is_timed_begins_once_the_gpu_is_awake(standin):
    """Its clocks rise in the first second of work; five steps are made long before that is over."""
    gpus = standin(memory="1G")
    order = HookOrder(purpose="look", warm_steps=3, steps=2, wake_s=1.0)
    _, stepped_at, seen = watched(gpus, order, 2 * MS, 0.06)
    lines = [json.loads(line) for line in next((gpus.home / "events").glob("*.jsonl")).read_text().splitlines()]
    (measured,) = [line["at"] for line in lines if line["kind"] == "measured"]
    # the first report may come later than the first step: it waits for the GPU
    assert measured - stepped_at >= 1.0
    assert seen.total.steps == 33


@pytest.mark.standin
def test_a_run_tells_the_same_speed(standin):
    own_s, _, seen = watched(standin(clock="virtual", memory="1G"), HookOrder(purpose="run"), SECOND, 0)
    # the first step is the start's, too
    first, last = seen.steps[0].total, seen.total
    assert (first.steps, last.steps) == (1, 33)
    assert (last.seconds - first.seconds) / 32 == pytest.approx(own_s, rel=0.03)


@pytest.mark.standin
def test_waiting_is_what_the_gpu_waits(standin):
    """Where the GPU has work for longer than a batch takes, nobody waits for the batch."""
    order = HookOrder(purpose="look", warm_steps=3, steps=24)
    *_, seen = watched(standin(clock="stands", memory="1G"), order, 60 * MS, 0.015)
    assert steady(seen, 3).wait_share < 0.3


@pytest.mark.standin
def test_a_gpu_that_is_done_before_the_next_batch_waits(standin):
    order = HookOrder(purpose="look", warm_steps=3, steps=24)
    *_, seen = watched(standin(clock="stands", memory="1G"), order, 2 * MS, 0.03)
    assert steady(seen, 3).wait_share > 0.5


@pytest.mark.standin
def test_a_graph_that_is_captured_is_left_alone(standin):
    """A mark in it would be part of it, and to ask for one would spoil it."""
    code = (
        "import sys, torch; from gpudoc.script.inside._gpudoc_inside.batches import GpuClock\n"
        "clock = GpuClock(); clock.start(torch.device('cuda:0')); mark = clock.mark()\n"
        "torch.cuda.is_current_stream_capturing = lambda: True\n"
        "print(mark is None, clock.mark(), clock.is_past(mark), clock.is_past(None))"
    )
    assert standin(memory="1G").python(code).stdout == "False None False True\n"


def test_without_a_gpu_there_are_no_marks_and_the_hosts_clock_counts():
    clock = GpuClock()
    assert clock.mark() is None
    assert clock.is_past(None)
    assert clock.seconds(None, None, 0.25) == 0.25
