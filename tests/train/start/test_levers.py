"""What each lever does to a step, on real modules and optimizers."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.profile.model import Levers
from gpudoc.train.ranks.protocol import Alone
from gpudoc.train.settings import TrainSettings
from gpudoc.train.start import levers
from gpudoc.train.start.parts import build_parts, form_of
from gpudoc.train.step.precision import Precision
from gpudoc.tune.trial.messages import Variant
from gpudoc.workload.build import load_workload
from tests.train.support import write_workload
from tests.train.torchao_like import hide, plant


@pytest.fixture
def given_back():
    """Torch's own switches as they were."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.benchmark = before[1]


@pytest.fixture
def built(tmp_path):
    """The parts of a step under the levers that a variant names."""
    workload = load_workload(str(write_workload(tmp_path)))

    def build(**changes):
        form = form_of(Variant(**changes), Precision("fp32", "as tried"))
        return build_parts(workload, workload.build_model(), form, torch.device("cpu"), Alone())

    return build


def test_a_form_has_every_lever_of_its_source():
    # those of the environment are set before a process begins
    named = {name for name in Levers.model_fields if name not in ("precision", "allocator", "wait_policy")}
    assert named <= set(type(form_of(Variant(), Precision("fp32", ""))).__dataclass_fields__)
    settings = TrainSettings(compile=True, compile_mode="dynamic", foreach=True, matmul_precision="high")
    found = form_of(settings, Precision("fp32", ""))
    assert (found.compile_mode, found.foreach, found.matmul_precision, found.fused) == ("dynamic", True, "high", True)


def test_torchs_switches_stay_as_they_are_unless_asked_for(built, given_back):
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    built()
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark) == ("high", True)
    built(matmul_precision="medium")
    assert torch.get_float32_matmul_precision() == "medium"


def test_cudnn_benchmarks_where_asked_and_never_in_a_deterministic_run(built, given_back):
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        built(cudnn_benchmark=True)
        assert not torch.backends.cudnn.benchmark
    finally:
        torch.use_deterministic_algorithms(False)
    built(cudnn_benchmark=True)
    assert torch.backends.cudnn.benchmark


def test_the_optimizer_takes_the_form_that_was_asked_for(built):
    def form(**changes):
        group = built(**changes).optimizer.param_groups[0]
        return group["fused"], group["foreach"]

    assert form() == (True, None)
    assert form(fused=False) == (None, None)
    assert form(foreach=True) == (None, True)


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def test_blocks_are_compiled_where_they_are_and_names_stay():
    model = Blocks()
    names = list(model.state_dict())
    levers.compile_inside(model, "blocks")
    assert all(block._compiled_call_impl is not None for block in model.blocks)
    assert model._compiled_call_impl is None
    assert list(model.state_dict()) == names
    assert levers.compile_around(model, "blocks") is model


def test_a_model_without_blocks_cannot_be_compiled_by_block():
    with pytest.raises(GpudocError, match="no repeated blocks"):
        levers.compile_inside(nn.Linear(2, 2), "blocks")


@pytest.mark.parametrize(
    ("mode", "told"),
    [("whole", {}), ("reduce-overhead", {"mode": "reduce-overhead"}), ("dynamic", {"dynamic": True})],
)
def test_each_mode_is_what_torch_calls_it(monkeypatch, built, mode, told):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda forward, **how: asked.append(how) or forward)
    parts = built(compile=True, compile_mode=mode)
    assert asked == [told]
    assert (parts.is_compiled, parts.replays_graphs) == (True, mode == "reduce-overhead")


def test_graphs_hear_of_every_step_and_lend_no_loss(monkeypatch, built):
    from gpudoc.train.loop.evaluate import evaluating, loss_of
    from gpudoc.train.step.step import Micro, Stepper

    begun = []
    monkeypatch.setattr(torch, "compile", lambda forward, **_: forward)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: begun.append(1))
    parts = built(compile=True, compile_mode="reduce-overhead")
    batch = (torch.zeros(2, 8), torch.zeros(2, 1))
    raw = []
    monkeypatch.setattr(parts.step, "loss", lambda model, batch: raw.append(_loss(model, batch)) or raw[-1])
    stepper = Stepper(parts)
    stepper.backward([Micro(batch, 0.5), Micro(batch, 0.5)])
    assert len(begun) == 1
    with evaluating(parts):
        told = loss_of(parts, batch)
    assert len(begun) == 2
    assert told.data_ptr() != raw[-1].data_ptr()
    built().begin()
    assert len(begun) == 2


def _loss(model, batch):
    return nn.functional.mse_loss(model(batch[0]), batch[1])


def test_a_state_of_8_bits_is_that_of_torchaos_twin_with_the_configs_arguments(tmp_path, monkeypatch, built):
    plant(tmp_path / "packages", monkeypatch)
    optimizer = built(optimizer_state="8bit").optimizer
    assert (type(optimizer).__module__, type(optimizer).__name__) == ("torchao.optim", "AdamW8bit")
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.01)
    assert type(built().optimizer) is torch.optim.AdamW


def test_without_torchao_it_is_said_what_to_install(monkeypatch, built):
    hide(monkeypatch)
    with pytest.raises(GpudocError, match="torchao, which has that optimizer, is not installed") as caught:
        built(optimizer_state="8bit")
    assert (caught.value.hint, caught.value.exit_code) == ("pip install torchao", ExitCode.NOT_DONE)


@pytest.mark.parametrize(
    ("optimizer", "twin"),
    [
        ({"target": "torch.optim:Adam"}, "torchao.optim:Adam8bit"),
        ({"target": "torch.optim:AdamW", "args": {"betas": [0.9, 0.95]}}, "torchao.optim:AdamW8bit"),
        ({"target": "torch.optim:AdamW", "args": {"maximize": True}}, None),
        ({"target": "torch.optim:SGD", "args": {"lr": 0.1}}, None),
    ],
)
def test_only_adam_with_arguments_that_both_take_has_a_twin(tmp_path, optimizer, twin):
    path = write_workload(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "optimizer": optimizer}))
    workload = load_workload(str(path))
    assert levers.small_twin(workload) == twin
    if twin is None:
        with pytest.raises(GpudocError, match=f"the config has {optimizer['target']}"):
            levers.target_of_optimizer(workload, "8bit", sharded=False)
    else:
        with pytest.raises(GpudocError, match="spread over ranks"):
            levers.target_of_optimizer(workload, "8bit", sharded=True)
