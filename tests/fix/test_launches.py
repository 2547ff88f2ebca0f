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


@pytest.mark.parametrize(("recording_s", "left_s"), [(0.0, 8.0), (1.0, 7.3), (9.0, 4.0), (1e6, 4.0)])
def test_recording_is_left_out_of_the_steps_but_never_more_than_half_of_them(recording_s, left_s):
    record = StateRecord(
        at=1.0, steps=10, roots=("r",) * 10, state={"parameters": "p"}, files={}, seconds=recording_s
    )  # fmt: skip
    # three of the ten are warm; the others take eight seconds together
    steps = pretended.steps([2.0] * 3 + [8 / 7] * 7, [0.0] * 10)
    run = run_of(pretended.told(pretended.seen(steps, record=record), status=0))
    assert run.steps == 7
    assert run.seconds == pytest.approx(left_s, rel=0.02)
