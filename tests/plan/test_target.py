import subprocess
import sys

import pytest

from gpudoc.errors import GpudocError
from gpudoc.knowledge.cards import require_card
from gpudoc.plan.target import parse_target
from gpudoc.units import GIB


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


def test_documents_and_arithmetic_need_no_torch():
    light = "gpudoc.plan, gpudoc.plan.allocator, gpudoc.plan.memory, gpudoc.plan.target, gpudoc.render.plan"
    code = f"import {light}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_of_a_gpu_that_shares_the_hosts_memory_half_is_counted_on():
    assert parse_target("GB10").memory_bytes == require_card("GB10").memory_bytes // 2
    assert parse_target("GH200").memory_bytes == require_card("GH200").memory_bytes
