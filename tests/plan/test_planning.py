import pytest
import torch
from torch import nn

from gpudoc import plan
from gpudoc.errors import ExitCode, GpudocError
from tests.plan.measure import measured_peak
from tests.plan.zoo import build_gan, gan_step, recipes


class Chosen(nn.Module):
    """A mixture of experts that sends tokens where they want to go: shapes depend on the data."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(16, 2), nn.ModuleList(nn.Linear(16, 16) for _ in range(2))

    def forward(self, value):
        chosen = self.gate(value).argmax(-1)
        out = torch.zeros_like(value)
        for index, expert in enumerate(self.experts):
            rows = (chosen == index).nonzero()[:, 0]
            out = out.index_add(0, rows, expert(value[rows]))
        return out


def square_step(model, value):
    model(value).square().mean().backward()


def test_the_python_door_plans_a_gan_with_two_optimizers():
    made = plan.trace(build_gan, gan_step("fp32"), lambda n: torch.randn(n, 784), batch_sizes=(6, 10))
    assert made.probed is None
    assert made.memory.exact
    real = measured_peak(recipes("fp32")["gan"], 32)
    assert made.memory.peak_bytes(32) == pytest.approx(real, rel=0.001)


def test_what_cannot_be_traced_is_run_and_says_why_and_where():
    made = plan.trace(Chosen, square_step, lambda n: torch.randn(n, 16))
    assert "aten.nonzero" in made.probed
    assert "test_planning.py" in made.probed
    assert "in forward" in made.probed
    assert made.memory.peak_bytes(4) > 4 * (16 * 16 * 2)


def test_what_can_be_neither_traced_nor_run_is_an_answer_not_a_traceback():
    def step(model, value):
        raise RuntimeError("needs a real CUDA device")

    with pytest.raises(GpudocError, match=r"neither traced .* nor run") as raised:
        plan.trace(lambda: nn.Linear(1, 1), step, lambda n: torch.zeros(n, 1))
    assert raised.value.exit_code is ExitCode.BAD_ANSWER
    assert "in step" in raised.value.message


def test_a_loss_over_all_pairs_gets_a_third_trace():
    def step(model, value):
        out = model(value)
        (out @ out.t()).square().mean().backward()

    made = plan.trace(lambda: nn.Linear(8, 8), step, lambda n: torch.randn(n, 8))
    assert made.memory.batches == (24, 40, 96)
