"""Where the time of steps on a GPU goes, with planted copies, waiting, pauses of Python and slow links."""

from __future__ import annotations

import json

import pytest

from tests.train.support import metrics

pytestmark = pytest.mark.standin

# seconds that Python sleeps in each forward pass before it queues work of the second length
LATE_S, WORK_S = 0.03, 0.01

MODULE = '''
import time

import torch
from torch import nn

from gpudoc.train.meter import head_start

# on a machine that does much else a step may take far longer to queue than the one before
head_start._MARGIN = 20.0

class Rows(torch.utils.data.Dataset):
    def __init__(self, width=8, count=96, sleep=0.0):
        self.rows, self.sleep = torch.randn(count, width, generator=torch.Generator().manual_seed(1)), sleep
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        time.sleep(self.sleep)
        return self.rows[index], self.rows[index, :1]

class Net(nn.Module):
    """Sleeps before its work is queued, and keeps the GPU busy for `cycles` of 1.98 GHz."""
    def __init__(self, width=8, late=0.0, cycles=0, hidden=4):
        super().__init__()
        self.inner, self.outer = nn.Linear(width, hidden), nn.Linear(hidden, 1)
        self.late, self.cycles = late, cycles
    def forward(self, x):
        time.sleep(self.late)
        if self.cycles:
            torch.cuda._sleep(self.cycles)
        return self.outer(torch.relu(self.inner(x)))
'''


def run(gpus, *arguments, model=None, data=None, **train):
    folder = gpus.home
    (folder / "timed.py").write_text(MODULE)
    config = {
        "model": {"target": "timed:Net", "args": model or {}},
        "data": {"target": "timed:Rows", "args": data or {}},
        "loss": {"target": "torch.nn:MSELoss"},
        "optimizer": {"target": "torch.optim:AdamW", "args": {"lr": 0.01}},
        "train": {"global_batch": 12, "precision": "fp32", "log_every": 8, "checkpoint_every": 0, **train},
    }
    (folder / "cfg.yaml").write_text(json.dumps(config))
    line = ("train", "--model", "cfg.yaml", "--profile", "off", "--plain", "--no-preflight", "--run-dir", "run")
    done = gpus.forked(*line, *map(str, arguments))
    assert done.returncode == 0, done.stderr
    return done, [row for row in metrics(folder / "run") if "lr" in row]


def test_python_that_is_late_inside_of_steps_is_told_from_work(standin):
    """While Python sleeps before the next step's work, the GPU does that of the step before."""
    _, rows = run(standin(clock="stands"), "--steps", 24, model={"late": LATE_S, "cycles": 19_800_000})
    for row in rows[1:]:
        seconds = row["seconds"]
        assert seconds["host"] > 0.9 * 8 * (LATE_S - WORK_S), seconds
        assert seconds["compute"] == pytest.approx(8 * WORK_S, rel=0.1), seconds


def test_work_that_python_is_ahead_of_is_all_work(standin):
    _, rows = run(standin(clock="stands"), "--steps", 24, model={"late": 0.002, "cycles": 79_200_000})
    for row in rows[1:]:
        seconds = row["seconds"]
        assert seconds["compute"] == pytest.approx(8 * 0.040, rel=0.1), seconds


@pytest.mark.parametrize("pinned", ["true", "false"])
def test_copies_that_are_waited_for_are_told(standin, pinned):
    """A batch of 12 x 100,000 numbers takes 9.6 ms at 0.5 GB/s; nothing else takes as long."""
    _, rows = run(
        standin(clock="virtual", pcie_gbps=0.5, math_ops="1e6"),
        *("--steps", 16, "--set", f"pin_memory={pinned}"),
        model={"width": 100_000},
        data={"width": 100_000},
    )
    assert rows[-1]["seconds"]["transfer"] == pytest.approx(8 * 12 * 400_000 / 0.5e9, rel=0.1)


def test_two_ranks_wait_for_a_slow_exchange(standin):
    """2.4 MB of gradients at 0.1 GB/s, in the first steps after backward."""
    gpus = standin(gpus=2, memory="2G", clock="virtual", peer_gbps=0.1)
    _, rows = run(gpus, "--steps", 16, model={"hidden": 60_000})
    assert rows[-1]["seconds"]["communicate"] > 8 * 0.024, rows[-1]["seconds"]


SHARING = """
import json
import torch
from torch import nn
from gpudoc.train.ranks.distributed import join
from gpudoc.train.ranks.meeting import place_here
from gpudoc.train.ranks.fsdp import Sharded
from gpudoc.train.step.precision import Precision
from gpudoc.train.step.step import Micro, Parts, Stepper
from gpudoc.workload.build import Step
from gpudoc.workload.config import Fsdp

place = place_here()
device = torch.device("cuda", place.local_rank)
torch.cuda.set_device(device)
join(place, device)
ranks = Sharded(place, device, Fsdp(reshard="always"))

class Block(nn.Module):
    def __init__(self, cycles):
        super().__init__()
        self.inner, self.cycles = nn.Linear(500, 500, bias=False, device=device), cycles
    def forward(self, x):
        if self.cycles:
            torch.cuda._sleep(self.cycles)
        return self.inner(x)

def best_of(cycles):
    model = ranks.wrap(nn.Sequential(*[Block(cycles) for _ in range(4)]))
    stepper = Stepper(Parts(
        model=model, forward=model, optimizer=torch.optim.AdamW(model.parameters(), fused=True), device=device,
        step=Step(loss=nn.MSELoss(), name="test"), precision=Precision("fp32", "told"), ranks=ranks,
    ))
    found = []
    for _ in range(12):
        stepper.meter.wait(0.0)
        stepper.run([Micro([torch.ones(12, 500)] * 2, 1.0)])
        stepper.meter.step_done()
        seconds = stepper.meter.take().seconds
        found.append((seconds["communicate"], seconds["compute"]))
    assert not stepper.waits.notes()
    # NCCL's watchdog asks again and again, which moves the virtual clock now and then
    return min(found, key=sum)

told = [best_of(0), best_of(int(0.012 * 1.98e9))]
ranks.leave()
if place.rank == 0:
    print(json.dumps(told))
"""


def test_two_ranks_that_share_weights_wait_for_what_no_computation_hides(standin):
    """Four blocks of 1 MB, of which each rank gives a half at 0.05 GB/s: two gathers and a reduction of 10 ms each.

    In backward a gather runs beside the reduction before it, so that about five times 10 ms are waited for there, and
    four times in forward. 12 ms of work in each block's forward hide all of the latter but the first.
    """
    done = standin(gpus=2, clock="virtual", peer_gbps=0.05).ranks(2, SHARING)
    assert done.returncode == 0, done.stderr[-3000:]
    waited, hidden = json.loads(done.stdout.splitlines()[-1])
    # where gathers and reductions meet is left to NCCL's threads: 10 ms more or less
    assert waited[1] < 0.01
    assert 0.075 < waited[0] < 0.125
    assert hidden[1] == pytest.approx(0.048, abs=0.006)
    assert 0.040 < hidden[0] < 0.070


LOOP = """
import json, time
import torch
from gpudoc.train.meter import head_start
from gpudoc.train.meter.meters import Meter

head_start._MARGIN = 20.0
device = torch.device("cuda", 0)
meter = Meter(device)
meter.look_for_gaps()
meter.restart()
last = time.perf_counter()
for stretch in range(6):
    for step in range(12):
        time.sleep(0.004)
        meter.wait(0.004)
        before = time.perf_counter()
        meter.transfer.start()
        torch.cuda._sleep(3_960_000)
        meter.transfer.stop()
        time.sleep(0.01)
        torch.cuda._sleep(19_800_000)
        meter.compute += time.perf_counter() - before
        meter.step_done()
        if step == 5:
            # not at a log point: the host first waits here for the work of the last step
            before = time.perf_counter()
            torch.cuda.synchronize()
            time.sleep(0.1)
            on_host_s = time.perf_counter() - before
            meter.checkpoint += on_host_s
    # what the GPU had to itself between the sixth and the seventh step, less the waiting for data at its end
    steps = meter.step.stretches()
    torch.cuda.synchronize()
    gap_s = steps[5][1].elapsed_time(steps[6][0]) / 1e3 - 0.004
    split = meter.take()
    now = time.perf_counter()
    wall_s, last = now - last, now
    print(json.dumps([wall_s, min(gap_s, on_host_s), split.seconds]))
"""


def test_the_phases_add_up_to_the_wall_time_and_almost_nothing_is_left_over(standin):
    done = standin(clock="stands").python(LOOP)
    # the first stretch has the pause in it; a busy machine only makes the host late, so the least late ones count
    rows = [json.loads(line) for line in done.stdout.splitlines()][1:]
    assert len(rows) == 5, done.stderr
    off = [abs(sum(seconds.values()) / wall - 1) for wall, _, seconds in rows]
    left = [seconds["other"] / wall for wall, _, seconds in rows]
    assert min(off) < 0.02, off
    assert min(left) < 0.02, left
    for _, gap, seconds in rows:
        # the wait for work that counts already is none of the checkpoint's
        assert seconds["checkpoint"] == pytest.approx(gap, rel=0.01), seconds
        assert seconds["transfer"] > 12 * 0.002 * 0.99, seconds
        assert seconds["compute"] == pytest.approx(12 * WORK_S, rel=0.1), seconds
