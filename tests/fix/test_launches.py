"""The recorded runs of a proof: both sides end at the same step, however fast they are."""

import sys

import pytest

from gpudoc.fix.launches import FixLaunches, run_of
from gpudoc.script.command import Command
from gpudoc.script.messages import StateRecord
from gpudoc.script.trial import Launches
from tests.script import pretended

# nothing but the end of its time keeps it from printing all of this
QUICK = """
import torch
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(40):
    (weight ** 2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    print("after step", step, flush=True)
print("the end", flush=True)
"""

LOADED = """
import torch
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.1)
for batch in torch.utils.data.DataLoader(torch.arange(100.0), batch_size=2):
    (weight * batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_recorded_run_prints_nothing_behind_its_last_step(tmp_path):
    script = tmp_path / "quick.py"
    script.write_text(QUICK)
    launches = Launches(command=Command((sys.executable, str(script))), scratch=tmp_path, isolated=False)
    run = FixLaunches(launches=launches).run(12, patience_s=300)
    assert run.record is not None
    assert 12 <= run.record.steps < 40
    # the step is recorded inside of it, before the script goes on
    assert run.printed == ("after step #",) * (run.record.steps - 1)
    assert not run.ended


def test_the_steps_whose_batches_are_digested_tell_no_speed():
    record = StateRecord(at=1.0, steps=20, roots=("r",) * 20, state={}, files={}, seconds=0.0)
    steps = pretended.steps([3.0] * 8 + [1.0] * 12, [0.0] * 20)
    run = run_of(pretended.told(pretended.seen(steps, record=record), status=0), 8)
    assert (run.steps, run.timed, run.digested, run.step_s) == (17, 12, 8, 1.0)
    assert run.pieces_s == pytest.approx((1.0,) * 4)


def test_where_too_few_steps_follow_all_of_them_tell_the_speed():
    record = StateRecord(at=1.0, steps=12, roots=("r",) * 12, state={}, files={}, seconds=0.0)
    steps = pretended.steps([3.0] * 10 + [1.0] * 2, [0.0] * 12)
    run = run_of(pretended.told(pretended.seen(steps, record=record), status=0), 10)
    assert (run.timed, run.digested) == (9, None)


def test_only_the_first_batches_are_digested_and_every_loss_is_recorded(tmp_path):
    script = tmp_path / "quick.py"
    script.write_text(LOADED)
    launches = Launches(command=Command((sys.executable, str(script))), scratch=tmp_path, isolated=False)
    run = FixLaunches(launches=launches).run(20, patience_s=300, digested=6)
    assert run.record is not None
    # the batch of a step is drawn when the steps before it are made
    assert [bool(one) for one in run.batches[:20]] == [True] * 6 + [False] * 14
    assert len(run.record.roots) == run.record.steps


@pytest.mark.parametrize(("recording_s", "left_s"), [(0.0, 8.0), (1.0, 7.3), (9.0, 4.0), (1e6, 4.0)])
def test_recording_is_left_out_of_the_steps_but_never_more_than_half_of_them(recording_s, left_s):
    record = StateRecord(
        at=1.0, steps=10, roots=("r",) * 10, state={"parameters": "p"}, files={}, seconds=recording_s
    )  # fmt: skip
    # three of the ten are warm; the others take eight seconds together
    steps = pretended.steps([2.0] * 3 + [8 / 7] * 7, [0.0] * 10)
    run = run_of(pretended.told(pretended.seen(steps, record=record), status=0))
    assert (run.steps, run.timed) == (7, 7)
    assert run.steps == 7
    assert run.seconds == pytest.approx(left_s, rel=0.02)
