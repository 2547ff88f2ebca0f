"""The parts of a step: which form of the optimizer is taken, and kernels that repeat themselves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpudoc.train.start.parts import be_deterministic, may_fuse
from gpudoc.workload.build import load_workload
from tests.train.support import write_workload


@pytest.fixture
def given_back():
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark = torch.backends.cudnn.benchmark
    yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    torch.backends.cudnn.benchmark = benchmark


@pytest.mark.parametrize(("optimizer", "expected"), [("AdamW", True), ("SGD", True), ("RMSprop", False)])
def test_optimizers_are_fused_where_a_fused_form_exists(tmp_path, optimizer, expected):
    path = write_workload(tmp_path)
    workload = load_workload(str(path))
    section = workload.config.optimizer.model_copy(update={"target": f"torch.optim:{optimizer}"})
    workload.config = workload.config.model_copy(update={"optimizer": section})
    model = nn.Linear(2, 2)
    assert may_fuse(workload, model, torch.device("cpu")) is expected
    assert not may_fuse(workload, nn.Embedding(3, 2, sparse=True), torch.device("cpu"))


def test_a_deterministic_run_on_a_cpu_warns_as_before(monkeypatch, given_back):
    be_deterministic(torch.device("cpu"))
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.is_deterministic_algorithms_warn_only_enabled()
