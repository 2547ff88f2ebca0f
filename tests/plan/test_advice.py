import textwrap

import pytest

from gpudoc import plan
from gpudoc.workload.build import load_workload

MODULE = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(1024, 8192), nn.Linear(8192, 1024)
    def forward(self, x):
        return x + self.down(self.up(x).relu())

def build():
    return nn.Sequential(*(Block() for _ in range(4)))

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
    result = plan.targets(load_workload(str(folder / "cfg.yaml")), ["4GiB", "1930MiB", "1800MiB", "1500MiB", "80GiB"])
    return {answer.target.name: answer for answer in result.answers}


def test_a_target_that_holds_the_reference_batch_needs_no_ladder(answers):
    assert answers["80GiB"].largest_batch >= 32
    assert answers["80GiB"].ladder == ()


def test_where_some_fit_smaller_micro_batches_are_all_it_takes(answers):
    answer = answers["4GiB"]
    assert 1 <= answer.largest_batch < 32
    (rung,) = answer.ladder
    assert rung.change == f"micro batch {rung.micro_batch}, accumulation {rung.accumulation}"
    # gradients stay while the next micro batch runs, so that fewer samples fit than into a step of their own
    assert 1 <= rung.micro_batch <= answer.largest_batch
    assert rung.micro_batch * rung.accumulation >= 32 > rung.micro_batch * (rung.accumulation - 1)
    assert rung.fits
    assert rung.peak_bytes <= 4 << 30
    assert rung.slowdown == pytest.approx(1.0, abs=0.01)


def test_each_rung_stands_on_those_before_it_and_the_last_one_fits(answers):
    ladder = answers["1800MiB"].ladder
    assert [rung.change.split(",")[0] for rung in ladder] == [
        "micro batch 1",
        "activation checkpointing of every block",
        "8-bit optimizer state",
    ]
    assert [rung.fits for rung in ladder] == [False, False, True]
    assert ladder[1].peak_bytes < ladder[0].peak_bytes


def test_where_a_part_of_the_blocks_is_enough_no_more_are_recomputed(answers):
    """These blocks keep a product's result and little else, so that being selective would spare nothing."""
    first, part = answers["1930MiB"].ladder
    assert (first.fits, part.fits) == (False, True)
    assert part.change == "activation checkpointing of 2 of 4 blocks"
    assert part.how == "--set activation_checkpointing=blocks:2"
    whole = answers["1800MiB"].ladder[1]
    assert whole.peak_bytes < part.peak_bytes <= 1930 << 20
    assert 1 < part.slowdown < whole.slowdown


def test_over_several_gpus_the_fewest_that_hold_it_are_named_and_what_they_exchange(answers):
    ladder = answers["1500MiB"].ladder
    *_, over, offloaded = ladder
    # training refuses a small state there
    assert over.change == f"FSDP2 over {over.gpus} such GPUs, its state in full"
    assert [rung.change for rung in ladder if rung.is_aside] == ["8-bit optimizer state"]
    assert over.fits
    assert over.peak_bytes <= 1500 << 20
    # bytes over a link that nothing is known of have no time
    assert over.slowdown is None
    assert over.moved_bytes > 0
    assert offloaded.gpus <= over.gpus
    assert offloaded.peak_bytes < over.peak_bytes or offloaded.gpus < over.gpus
    # four blocks of 16 Mi weights with gradients and a state in full, as training spreads it, on so many hosts
    assert offloaded.host_bytes == pytest.approx(4 * (2 * 1024 * 8192) * (4 + 4 + 8) / offloaded.gpus, rel=0.02)


def test_a_document_says_that_nothing_was_run(answers):
    (row,) = answers["4GiB"].document()["ladder"]
    assert row["basis"] == "predicted, not run"
    assert row["fits"] is True
    (advice,) = answers["4GiB"].document()["advice"]
    assert set(advice) == {"change", "peak_bytes", "largest_batch"}
