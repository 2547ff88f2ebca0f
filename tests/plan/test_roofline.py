import pytest

from gpudoc.knowledge.cards import require_card
from gpudoc.plan.roofline import least_step_s
from gpudoc.plan.tape import Work

A100, T4 = require_card("A100"), require_card("T4")


def test_a_large_product_is_bound_by_the_dense_rate_of_its_type():
    flops = 312 * 10**12
    assert least_step_s([Work("mm", "bfloat16", flops, 1)], A100) == pytest.approx(1)
    assert least_step_s([Work("mm", "float32", flops, 1)], A100) == pytest.approx(16)
    assert least_step_s([Work("convolution", "float32", flops, 1)], A100) == pytest.approx(2)


def test_an_elementwise_operation_is_bound_by_bandwidth():
    assert least_step_s([Work("add", "float32", 0, 1935 * 10**9)], A100) == pytest.approx(1)


def test_a_card_without_bfloat16_uses_its_fp16_rate():
    assert least_step_s([Work("mm", "bfloat16", 65 * 10**12, 1)], T4) == pytest.approx(1)
