import textwrap

import pytest
import torch

from gpudoc import plan
from gpudoc.errors import GpudocError
from gpudoc.plan import PlanSettings
from gpudoc.plan.from_workload import workload_recipe
from gpudoc.plan.need import Need
from gpudoc.plan.planning import traced
from gpudoc.plan.target import parse_target
from gpudoc.train.step.sequence import StepSequence
from gpudoc.workload.build import load_workload
from tests.plan.measure import measured_peak

MODULE = """
import torch
from torch import nn

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)
    def forward(self, tokens):
        return self.head(self.words(tokens))

class Lines(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, i):
        return torch.zeros(5 + i, dtype=torch.long)

def pad(lines):
    tokens = nn.utils.rnn.pad_sequence(lines, batch_first=True)
    return tokens, tokens

def loss(out, target):
    return nn.functional.cross_entropy(out.flatten(0, 1), target.flatten())
"""
# the copy of the state of torch's generator that training keeps
GENERATOR_BYTES = 5056
CONFIG = """
model: {target: "lines_model:Words"}
data: {target: "lines_model:Lines", collate: "lines_model:pad"}
loss: {target: "lines_model:loss"}
train: {grad_clip: 1.0, reference_batch: 16}
"""


@pytest.fixture
def workload(tmp_path, monkeypatch):
    (tmp_path / "lines_model.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / "cfg.yaml").write_text(CONFIG)
    monkeypatch.syspath_prepend(str(tmp_path))
    return load_workload(str(tmp_path / "cfg.yaml"))


def test_inputs_have_the_shape_of_the_longest_sample(workload):
    tokens, _ = workload_recipe(workload, PlanSettings()).batch(7)
    assert tokens.shape == (7, 44)
    assert tokens.dtype is torch.long


@pytest.mark.parametrize("settings", [PlanSettings(), PlanSettings(accumulation=3)])
def test_the_plan_of_a_workload_is_its_real_peak(workload, settings):
    recipe = workload_recipe(workload, settings)
    predicted = plan.predict(workload, settings).memory.peak_bytes(50)
    assert predicted == pytest.approx(measured_peak(recipe, 50), rel=0.001, abs=GENERATOR_BYTES)


@pytest.mark.parametrize("settings", [PlanSettings(), PlanSettings(like="cuda")])
def test_frozen_weights_are_planned_without_gradient_and_optimizer_state(workload, settings):
    before = plan.predict(workload, settings).memory.peak_bytes(1)
    model = workload.config.model.model_copy(update={"frozen": ["words.*"]})
    workload.config = workload.config.model_copy(update={"model": model})
    after = plan.predict(workload, settings).memory.peak_bytes(1)
    # 50 x 16 numbers in float32: at least Adam's two are no longer held at any time
    assert before - after >= 2 * 50 * 16 * 4
    if settings.like == "cpu":
        recipe = workload_recipe(workload, settings)
        assert plan.predict(workload, settings).memory.peak_bytes(50) == pytest.approx(
            measured_peak(recipe, 50), rel=0.001, abs=GENERATOR_BYTES
        )


def test_what_trains_own_step_holds_is_in_the_plan(workload, monkeypatch):
    before = plan.predict(workload).memory.peak_bytes(50)
    weights = sum(parameter.numel() * 4 for parameter in workload.build_model().parameters())
    real = StepSequence.run

    def holding(self, step):
        held = [parameter.detach().clone() for parameter in self.stepper.parameters]
        outcome = real(self, step)
        held.clear()
        return outcome

    monkeypatch.setattr(StepSequence, "run", holding)
    assert plan.predict(workload).memory.peak_bytes(50) == before + weights


@pytest.mark.parametrize("settings", [PlanSettings(like="cuda"), PlanSettings(like="cuda", accumulation=3)])
def test_the_plan_of_a_workload_is_replayed_step_by_step(workload, settings):
    """40 samples in steps of 16: a first step, one of the last 8, an evaluation, two more."""
    need = Need.on(plan.predict(workload, settings), parse_target("4GiB"))
    assert len(need._parts(16)) == 5
    assert need.replay(16).fits


def test_trains_own_questions_about_values_are_no_notes_about_the_users_code(workload):
    for settings in (
        PlanSettings(),
        PlanSettings(like="cuda", precision="fp16"),
        PlanSettings(like="cuda", fused=True),
    ):
        assert plan.predict(workload, settings).memory.notes == ()


def test_recomputing_needs_blocks(workload):
    with pytest.raises(GpudocError, match="no repeated block"):
        plan.predict(workload, PlanSettings(activation_checkpointing=True))


def test_the_quickstart_needs_less_when_it_recomputes():
    quickstart = load_workload("quickstart")
    plain = plan.predict(quickstart).memory.peak_bytes(64)
    policies = (True, "selective", "blocks:1")
    whole, *parts = (
        plan.predict(quickstart, PlanSettings(activation_checkpointing=policy)).memory.peak_bytes(64)
        for policy in policies
    )
    assert whole < 0.8 * plain
    assert all(1.2 * whole < part < 0.9 * plain for part in parts)
    assert plan.predict(quickstart, PlanSettings(precision="bf16")).memory.peak_bytes(64) < 0.9 * plain


@pytest.mark.parametrize("policy", ["selective", pytest.param("blocks:1", marks=pytest.mark.slow)])
def test_what_a_policy_spares_is_predicted_as_it_is_measured(policy):
    recipe = workload_recipe(load_workload("quickstart"), PlanSettings(activation_checkpointing=policy))
    assert traced(recipe).memory.peak_bytes(64) == pytest.approx(measured_peak(recipe, 64), rel=0.002)
