"""Control runs of a real script: its first weights are moved by one bit, and nothing else is."""

import math
import sys

import pytest

from gpudoc.fix.launches import FixLaunches, RoundingOrder
from gpudoc.script.command import Command
from gpudoc.script.trial import Launches

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)).double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 4).double(), torch.randn(64, 1).double())
for epoch in range(5):
    for x, y in DataLoader(data, 8, shuffle=True):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

WITHOUT_MODULES = """
import torch
torch.manual_seed(0)
weight = torch.randn(4, 1, dtype=torch.float64).requires_grad_(True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(40):
    loss = (torch.randn(8, 4, dtype=torch.float64) @ weight).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_weights_that_are_in_no_module_are_moved_too_before_the_first_loss(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(WITHOUT_MODULES)
    launches = Launches(command=Command((sys.executable, str(script))), scratch=tmp_path, isolated=False)
    fix = FixLaunches(launches=launches)
    plain, up = (
        fix.run(24, patience_s=300, rounding=one) for one in (RoundingOrder(), RoundingOrder("up", single=True))
    )
    assert 1e-11 < abs(up.record.losses[0] - plain.record.losses[0]) < 1e-4


@pytest.mark.slow
def test_a_control_run_parts_by_the_bit_that_its_weights_were_moved_by_and_draws_the_same_numbers(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    launches = Launches(command=Command((sys.executable, str(script))), scratch=tmp_path, isolated=False)
    fix = FixLaunches(launches=launches)
    orders = [RoundingOrder(), RoundingOrder("up"), RoundingOrder("down"), RoundingOrder("up", single=True)]
    orders += [RoundingOrder("out"), RoundingOrder("in")]
    plain, up, down, single, out, inward = (fix.run(24, patience_s=300, rounding=order) for order in orders)
    assert plain.record.losses[0] > 0
    distances = [abs(one.record.losses[0] - plain.record.losses[0]) for one in (up, down, single)]
    assert 0 < max(distances[:2]) < 1e-12, distances
    assert 1e-11 < distances[2] < 1e-4
    assert all(math.isfinite(loss) for loss in single.record.losses)
    assert len({one.record.state["parameters"] for one in (plain, up, down, out, inward)}) == 5
    for one in (up, down, out, inward):
        assert one.batches == plain.batches
        assert one.record.state["torch's generator"] == plain.record.state["torch's generator"]
        assert one.record.state["parameters"] != plain.record.state["parameters"]
