import subprocess
import sys

import pytest

from gpudoc.errors import GpudocError
from gpudoc.plan.memory import WorkModel, join
from gpudoc.plan.planning import Plan
from gpudoc.plan.tape import Block, Phase, Tape
from gpudoc.plan.target import Need, parse_target
from gpudoc.units import GIB, MIB


def plan_of(fixed, per_sample):
    def tape(batch):
        blocks = [Block(fixed, "a", "", Phase.BUILD), Block(per_sample * batch, "b", "", Phase.FORWARD)]
        return Tape(batch, blocks=blocks, events=[0, 1, ~1])

    memory = join([tape(2), tape(4)], "cuda")
    return Plan(memory=memory, work=WorkModel(batches=(2, 4), works=((), ())), num_parameters=1)


def test_a_target_is_a_card_or_a_size():
    card, size = parse_target("rtx 3090"), parse_target("24GiB")
    assert (card.name, card.precision, card.capability) == ("RTX 3090", "bf16", (8, 6))
    assert (size.name, size.memory_bytes, size.capability) == ("24GiB", 24 * GIB, None)
    assert parse_target("T4").precision == "fp16"


def test_an_unknown_card_names_the_nearest():
    with pytest.raises(GpudocError) as raised:
        parse_target("RTX 3009")
    assert "RTX 3090" in raised.value.hint


def test_a_size_smaller_than_the_context_is_refused():
    with pytest.raises(GpudocError, match="less than a CUDA context") as raised:
        parse_target("100MiB")
    assert raised.value.hint


def test_the_largest_batch_is_what_the_allocator_can_hold():
    need = Need(plan_of(100 * MIB, 32 * MIB), parse_target("4GiB"))
    available = 4 * GIB - 692 * MIB  # the largest known context, for want of a card
    workspaces = 2 * 32 * MIB  # of the threads of forward and backward
    assert need.largest_batch() == (available - workspaces - 100 * MIB) // (32 * MIB)
    assert need.largest_batch(0.5) < need.largest_batch()


def test_the_peak_counts_context_and_workspaces():
    need = Need(plan_of(100 * MIB, 32 * MIB), parse_target("4GiB"))
    assert need.peak_bytes(2) == (692 + 2 * 32 + 100 + 64) * MIB


def test_a_plan_larger_than_the_target_still_says_what_it_would_need():
    need = Need(plan_of(8 * GIB, MIB), parse_target("4GiB"))
    assert need.largest_batch() == 0
    assert need.peak_bytes(1) > 8 * GIB


def test_documents_and_arithmetic_need_no_torch():
    light = "gpudoc.plan, gpudoc.plan.allocator, gpudoc.plan.memory, gpudoc.plan.target, gpudoc.render.plan"
    code = f"import {light}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
