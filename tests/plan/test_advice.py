import textwrap

import pytest

from gpudoc import plan
from gpudoc.plan.advice import unit_of
from gpudoc.workload.build import load_workload

MODULE = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(1024, 4096), nn.Linear(4096, 1024)
    def forward(self, x):
        return x + self.down(self.up(x).relu())

def build():
    return nn.Sequential(*(Block() for _ in range(8)))

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.zeros(512, 1024), torch.zeros(512, 1024)
"""
CONFIG = """
model: {target: "wide_model:build"}
data: {target: "wide_model:Rows"}
loss: {target: "torch.nn:MSELoss"}
train: {reference_batch: 32, precision: fp32}
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    (folder / "wide_model.py").write_text(textwrap.dedent(MODULE))
    (folder / "cfg.yaml").write_text(CONFIG)
    result = plan.targets(load_workload(str(folder / "cfg.yaml")), ["4GiB", "1800MiB", "80GiB"])
    return {answer.target.name: answer for answer in result.answers}


def test_a_target_that_holds_the_reference_batch_needs_no_advice(answers):
    assert answers["80GiB"].largest_batch >= 32
    assert answers["80GiB"].advice == ()


def test_where_some_fit_the_first_advice_is_to_accumulate(answers):
    answer = answers["4GiB"]
    assert 1 <= answer.largest_batch < 32
    first = answer.advice[0]
    assert first.change.startswith(f"micro batch {first.largest_batch}, accumulation ")
    assert first.peak_bytes <= 4 << 30


def test_every_other_change_makes_more_fit_and_says_its_peak(answers):
    answer = answers["4GiB"]
    changes = {advice.change: advice for advice in answer.advice}
    assert "activation checkpointing" in changes
    assert "precision bf16" in changes
    for advice in answer.advice[1:]:
        assert advice.largest_batch > answer.largest_batch
        assert advice.peak_bytes > 0


def test_where_nothing_fits_two_gpus_are_proposed(answers):
    answer = answers["1800MiB"]
    assert answer.largest_batch == 0
    assert any("such GPUs with FSDP" in advice.change for advice in answer.advice)


def test_sharding_gathers_one_numbered_block_at_a_time():
    assert unit_of("model.blocks.3.mlp.0") == "model.blocks.3"
    assert unit_of("model.head") == "model.head"
    assert unit_of("") == ""
