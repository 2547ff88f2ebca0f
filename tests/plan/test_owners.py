from dataclasses import dataclass

import pytest
import torch
from torch import nn

from gpudoc.plan.owners import Owners
from gpudoc.plan.recorder import TapeRecorder
from gpudoc.plan.scratch import Rules
from gpudoc.plan.tape import StepPhase, StorageKind, Tape


@dataclass
class Pair:
    left: nn.Module
    right: nn.Module


def model_and_optimizer():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    return model, torch.optim.Adam(model.parameters())


@pytest.mark.parametrize(
    ("state", "names"),
    [
        (lambda: nn.Sequential(nn.Linear(2, 2)), {"0"}),
        (model_and_optimizer, {"0"}),
        (lambda: {"net": nn.Linear(2, 2)}, {"net"}),
        (lambda: Pair(nn.Linear(2, 2), nn.Linear(2, 2)), {"left", "right"}),
        (lambda: [nn.Linear(2, 2), nn.Linear(2, 2)], {"0", "1"}),
    ],
)
def test_modules_are_found_wherever_a_state_keeps_them(state, names):
    owners = Owners(state())
    assert {name for name, _ in owners.parameters()} == names


def test_tied_parameters_count_once():
    a, b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    b.weight = a.weight
    assert Owners([a, b]).num_parameters() == 16


def test_parameters_that_only_an_optimizer_knows_count_too():
    assert Owners(torch.optim.SGD([torch.ones(5, requires_grad=True)])).num_parameters() == 5


def test_the_optimizers_step_has_its_own_phase_and_names_its_state():
    tape = Tape(1)
    recorder = TapeRecorder(tape, Rules({}), fake=False)
    with recorder:
        model, optimizer = model_and_optimizer()
        owners = Owners((model, optimizer))
        with owners.watch(recorder):
            recorder.phase = StepPhase.FORWARD
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            assert recorder.phase is StepPhase.FORWARD
    state = [block for block in tape.blocks if block.kind is StorageKind.OPTIMIZER]
    assert sum(block.size_bytes for block in state) == 2 * (24 + 12) + 2 * 4  # two moments, and a step count each
    assert {block.phase for block in state} == {StepPhase.OPTIMIZER}
    assert [block.module for block in tape.blocks if block.kind is StorageKind.GRADIENTS] == ["0", "0"]


def test_hooks_are_gone_afterwards():
    recorder = TapeRecorder(Tape(1), Rules({}), fake=False)
    model, optimizer = model_and_optimizer()
    with Owners((model, optimizer)).watch(recorder):
        pass
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert recorder.modules == []
    assert recorder.phase is StepPhase.BUILD


def test_moved_are_inner_modules_first():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.own = nn.Parameter(torch.zeros(1))
            self.inner = nn.Linear(2, 3)

    model = Outer()
    moved = list(Owners(model).as_moved())
    assert [id(tensor) for tensor in moved] == [id(model.inner.weight), id(model.inner.bias), id(model.own)]
