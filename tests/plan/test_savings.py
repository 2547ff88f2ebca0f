"""What a trace would hold with a narrower state, on other ranks, or in the host's memory: arithmetic on blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpudoc.plan import savings
from gpudoc.plan.memory import MemoryModel, WorkModel
from gpudoc.plan.planning import Plan
from gpudoc.plan.tape import GATHER, REDUCE, StepPhase, Storage, StorageKind, Work
from gpudoc.workload.build import load_workload

KIB = 1024
BLOCKS = (
    Storage(400 * KIB, "empty", "layer", StepPhase.BUILD, kind=StorageKind.WEIGHTS, is_spread=True),
    Storage(16 * KIB, "arange", "layer", StepPhase.BUILD, kind=StorageKind.WEIGHTS),
    Storage(1600 * KIB, GATHER, "layer", StepPhase.FORWARD),
    Storage(400 * KIB, REDUCE, "layer", StepPhase.BACKWARD, kind=StorageKind.GRADIENTS, is_spread=True),
    Storage(800 * KIB, "zeros_like", "layer", StepPhase.OPTIMIZER, kind=StorageKind.OPTIMIZER, is_spread=True),
    Storage(8, "zeros", "layer", StepPhase.OPTIMIZER, kind=StorageKind.OPTIMIZER, is_spread=True),
)
WORK = (
    Work("c10d::_allgather_base_", "bfloat16", 0, 900 * KIB),
    Work("c10d::_allgather_base_", "bfloat16", 0, 900 * KIB),
    Work(REDUCE, "float32", 0, 1800 * KIB),
    Work("mm", "bfloat16", 10**9, 900 * KIB),
)


def traced():
    sizes = np.array([block.size_bytes for block in BLOCKS], dtype=np.int64)
    memory = MemoryModel(
        like="cuda",
        batches=(2, 4),
        points=(sizes, sizes),
        blocks=BLOCKS,
        events=np.arange(len(BLOCKS), dtype=np.int64),
        marks={"built": 2, "step 1": 6},
        notes=(),
    )
    return Plan(memory=memory, work=WorkModel(batches=(2, 4), works=(WORK, WORK)), num_parameters=1)


def sizes(plan):
    return plan.memory.points[0].tolist()


def test_eight_bits_take_a_byte_an_element_and_a_scale_for_each_256():
    found = sizes(savings.with_small_state(traced()))
    assert found[4] == 200 * KIB + 200 * KIB // 256 * 4 + 1024
    # what has few elements stays, and so does all that is no state
    assert found[:4] + found[5:] == sizes(traced())[:4] + sizes(traced())[5:]
    # torchao leaves a tensor alone that its blocks do not divide
    odd = np.array([800 * KIB + 4 * (block is BLOCKS[4]) for block in BLOCKS], dtype=np.int64)
    plan = replace(traced(), memory=replace(traced().memory, points=(odd, odd)))
    assert sizes(savings.with_small_state(plan))[4] == 800 * KIB + 4


def test_on_other_ranks_only_what_is_spread_changes():
    assert sizes(savings.over(traced(), 8)) == sizes(traced())
    found = sizes(savings.over(traced(), 16))
    assert found[0] == 200 * KIB
    assert found[1:3] == [16 * KIB, 1600 * KIB]
    assert found[4] == 400 * KIB


def test_in_the_hosts_memory_lies_all_that_is_spread_and_a_part_of_a_block_is_on_its_way():
    plan = savings.offloaded(traced(), 8)
    assert sizes(plan)[:6] == [0, 16 * KIB, 1600 * KIB, 0, 0, 0]
    assert sizes(plan)[6] == 2 * 1600 * KIB // 8
    assert plan.memory.events.tolist() == [0, 1, 2, 6, ~6, 3, 4, 5]
    assert plan.memory.marks == {"built": 2, "step 1": 8}


def test_every_gpu_receives_what_the_others_hold():
    found = savings.exchange_of(traced(), 8)
    # 800 KiB gathered twice, 1600 KiB summed; an eighth of each is its own
    assert found.link_bytes == 3200 * KIB * 7 // 8
    assert (found.up_bytes, found.down_bytes, found.host_bytes) == (0, 0, 0)
    assert savings.exchange_of(traced(), 2).link_bytes == 3200 * KIB // 2
    assert savings.exchange_of(traced(), 1).link_bytes == 0


def test_offloaded_weights_come_in_float32_and_gradients_leave():
    found = savings.exchange_of(traced(), 8, is_offloaded=True)
    assert found.up_bytes == 2 * 1600 * KIB // 8
    assert found.down_bytes == 1600 * KIB // 8
    assert found.host_bytes == 1600 * KIB + 512


def test_only_adam_has_a_narrow_twin(tmp_path):
    quickstart = load_workload("quickstart")
    assert savings.can_shrink(quickstart) == quickstart.config.optimizer.target.startswith("torch.optim:Adam")
