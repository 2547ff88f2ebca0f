"""The recorded runs of a proof: both sides end at the same step, however fast they are."""

import sys

from gpudoc.fix.launches import FixLaunches
from gpudoc.script.command import Command
from gpudoc.script.trial import Launches

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
