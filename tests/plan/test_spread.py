"""One rank of several that share a model, as a trace sees it: what it holds, gathers and exchanges."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpudoc import plan
from gpudoc.plan.from_workload import workload_recipe
from gpudoc.plan.planning import traced
from gpudoc.plan.tape import GATHER, REDUCE, StorageKind
from gpudoc.workload.build import load_workload
from gpudoc.workload.config import Fsdp

SIZES = {"layers": 4, "width": 256, "heads": 4, "inner": 704, "vocabulary": 1000, "length": 64}
# of one block: four square products, three of the feed-forward part and two norms; of the rest: embedding, head, norm
BLOCK = 4 * 256**2 + 3 * 256 * 704 + 2 * 256
REST = 2 * 1000 * 256 + 256
WHOLE = 4 * BLOCK + REST


@pytest.fixture(scope="module")
def workload(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    shutil.copy(Path(__file__).with_name("llama.py"), folder / "spread_llama.py")
    (folder / "cfg.yaml").write_text(
        f"model: {{target: 'spread_llama:Decoder', args: {SIZES}}}\n"
        "data: {target: 'spread_llama:Tokens', args: {length: 64}}\n"
        "train: {reference_batch: 8, precision: bf16, grad_clip: 1.0}\n"
    )
    return load_workload(str(folder / "cfg.yaml"))


def planned(workload, **how):
    ranks = how.pop("ranks", 4)
    checkpointing = how.pop("activation_checkpointing", False)
    settings = plan.PlanSettings(
        like="cuda", precision="bf16", ranks=ranks, fsdp=Fsdp(**how), activation_checkpointing=checkpointing
    )
    return traced(workload_recipe(workload, settings), (2, 4))


@pytest.fixture(scope="module")
def spread(workload):
    return planned(workload)


def test_a_rank_holds_its_part_of_weights_and_state(spread):
    # the tables of angles are on every rank
    tables = 4 * 2 * 64 * 32 * 4
    at_peak = spread.memory.composition(2).by_kind
    assert at_peak[StorageKind.WEIGHTS] == WHOLE + tables
    assert at_peak[StorageKind.OPTIMIZER] == pytest.approx(2 * WHOLE, rel=0.001)
    assert spread.num_parameters == WHOLE


def test_blocks_are_gathered_in_the_precision_of_the_step_and_summed_in_float32(spread):
    sizes = {GATHER: set(), REDUCE: set()}
    for block, size in zip(spread.memory.blocks, spread.memory.points[0], strict=True):
        sizes.get(block.op, set()).add(int(size))
    assert {2 * BLOCK, 2 * REST} <= sizes[GATHER]
    assert {BLOCK, REST} <= sizes[REDUCE]


def test_what_is_exchanged_is_two_gathers_and_a_sum(spread):
    gathered = sum(work.moved_bytes for work in spread.work.works[0] if work.op.startswith("c10d::_allgather"))
    reduced = sum(work.moved_bytes for work in spread.work.works[0] if work.op == REDUCE)
    # whole and part; what is not a block stays gathered from forward to backward
    assert gathered == (2 * 4 * BLOCK + REST) * 2 * 5 // 4
    assert reduced == WHOLE * 4 * 5 // 4


def test_never_to_reshard_holds_all_blocks_until_backward(workload, spread):
    kept = planned(workload, reshard="never")
    more = kept.memory.peak_bytes(2) - spread.memory.peak_bytes(2)
    # all but what runs and what is gathered ahead of it
    assert 2 * BLOCK < more < 4 * 2 * BLOCK


@pytest.mark.slow
def test_sums_in_the_precision_of_the_weights_take_half(workload, spread):
    narrow = planned(workload, reduce="weights")
    reduced = [sum(w.moved_bytes for w in each.work.works[0] if w.op == REDUCE) for each in (spread, narrow)]
    assert reduced[0] == 2 * reduced[1]


def test_nothing_of_the_group_stays(spread):
    import torch.distributed as dist

    assert not dist.is_initialized()
